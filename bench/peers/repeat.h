#pragma once

// How every peer is timed, in one place so that no contender gets a kinder clock than another.
//
// One repetition on each rank:
//   write the input -> the peer's own barrier -> start gate -> t0 -> all-reduce -> t1 -> the peer's barrier -> check
//
// A rank's time is t1 - t0, and t1 is taken once the whole result is readable on that rank. A repetition's time is the
// maximum over ranks. max(t1) - max(t0) would hide a late starter and max(t1) - min(t0) would charge for the gate.
//
// The peers' barriers leave ranks at quite different moments (Gloo's by tens of microseconds), so a gate in shared
// memory follows them. The barrier before it stays: an MPI library may need its peers inside MPI to make progress. The
// barrier after t1 keeps a fast rank from writing its next input while others still reduce on the same cores.
//
// Ranks walk through `buffers_bytes` of inputs and results per host, so that nothing of earlier repetitions helps
// from the last-level cache. Messages up to kSmallMessage walk through kSmallBuffers instead: touching 1 GiB in 1 KiB
// steps would measure page-table walks.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace peers {

inline constexpr std::size_t kSmallMessage = 64 << 10;
inline constexpr std::size_t kSmallBuffers = 64 << 20;
inline constexpr std::size_t kCacheLine = 64;

struct Options {
  int ranks = 0;  // only for peers without a launcher
  std::size_t bytes = 1 << 20;
  int iterations = 0;  // 0: by size, see settle()
  int warmup = -1;     // -1: a tenth of the iterations, at least 3
  std::size_t buffers_bytes = std::size_t{1} << 30;
  bool in_place = true;    // results over inputs: what peers do best; out of place keeps the inputs, as Pliant does
  bool huge_pages = true;  // ask for them; the kernel may say no. Halves the time of MPI's cross-process copies
  bool yield = false;      // MPI: poll with sched_yield, for a library that spins where ranks outnumber cores
  std::string algorithm;   // for peers that offer a choice; empty: theirs
  std::vector<std::string> hosts;  // NAMESPACE=ADDRESS each: rank i is on the one at i * hosts / ranks; none: loopback
  std::size_t elements() const { return bytes / sizeof(float); }
};

[[noreturn]] inline void fail(const std::string& why);

// Moves the calling rank into its host's network namespace, and tells its address there.
inline std::string enter_host(const Options& options, int rank) {
  if (options.hosts.empty()) return "127.0.0.1";
  const std::string& host =
      options.hosts[static_cast<std::size_t>(rank) * options.hosts.size() / static_cast<std::size_t>(options.ranks)];
  const std::size_t cut = host.find('=');
  if (cut == std::string::npos) fail("--hosts is NAMESPACE=ADDRESS,…");
  const int space = open(("/run/netns/" + host.substr(0, cut)).c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) fail("cannot enter the network namespace " + host.substr(0, cut));
  close(space);
  return host.substr(cut + 1);
}

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

// Accepts 4096, 64Ki, 16Mi, 1Gi.
inline std::size_t parse_size(const std::string& text) {
  std::size_t used = 0;
  unsigned long long value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    fail("not a size: " + text);
  }
  const std::string unit = text.substr(used);
  if (unit.empty()) return value;
  if (unit == "Ki") return value << 10;
  if (unit == "Mi") return value << 20;
  if (unit == "Gi") return value << 30;
  fail("not a size: " + text);
}

// Fills in what depends on the size: enough repetitions for a p99 of small messages, few enough that large ones end.
inline void settle(Options& options) {
  if (options.bytes < sizeof(float) || options.bytes % sizeof(float) != 0) fail("--bytes must be a multiple of 4");
  if (options.bytes <= kSmallMessage) options.buffers_bytes = std::min(options.buffers_bytes, kSmallBuffers);
  if (options.iterations <= 0) {
    options.iterations = static_cast<int>(std::clamp<std::size_t>((std::size_t{512} << 20) / options.bytes, 20, 2000));
  }
  if (options.warmup < 0) options.warmup = std::max(3, options.iterations / 10);
}

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--out-of-place") {
      options.in_place = false;
      continue;
    }
    if (name == "--small-pages") {
      options.huge_pages = false;
      continue;
    }
    if (name == "--yield") {
      options.yield = true;
      continue;
    }
    if (i + 1 == argc) fail(name + " needs a value or is unknown");
    const std::string value = argv[++i];
    if (name == "--ranks") {
      options.ranks = static_cast<int>(parse_size(value));
    } else if (name == "--bytes") {
      options.bytes = parse_size(value);
    } else if (name == "--iterations") {
      options.iterations = static_cast<int>(parse_size(value));
    } else if (name == "--warmup") {
      options.warmup = static_cast<int>(parse_size(value));
    } else if (name == "--buffers-bytes") {
      options.buffers_bytes = parse_size(value);
    } else if (name == "--algorithm") {
      options.algorithm = value;
    } else if (name == "--hosts") {
      for (std::size_t at = 0; at <= value.size();) {
        const std::size_t comma = std::min(value.find(',', at), value.size());
        options.hosts.push_back(value.substr(at, comma - at));
        at = comma + 1;
      }
    } else {
      fail("unknown option " + name);
    }
  }
  settle(options);
  return options;
}

// A rank must not outlive a launcher that was killed.
inline void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

inline double now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// Whole numbers below 128, so that sums over any number of ranks here are exact in fp32 in any order. The
// multiplication spreads the index over the upper bits: a block that lands in the wrong place is noticed even if the
// offset is a power of two.
inline float input_value(std::uint32_t rank, std::uint32_t iteration, std::uint32_t index) {
  const std::uint32_t mixed = (index + iteration * 40503u + rank * 9176u) * 2654435761u;
  return static_cast<float>(static_cast<std::int32_t>(mixed >> 25));
}

inline float expected_value(int ranks, std::uint32_t iteration, std::uint32_t index) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += input_value(static_cast<std::uint32_t>(rank), iteration, index);
  return sum;
}

inline void write_input(float* input, std::size_t elements, int rank, int iteration) {
  for (std::size_t i = 0; i < elements; ++i) {
    input[i] = input_value(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(iteration),
                           static_cast<std::uint32_t>(i));
  }
}

inline bool is_sum(const float* result, std::size_t elements, int ranks, int iteration, std::size_t stride) {
  const auto turn = static_cast<std::uint32_t>(iteration);
  bool good = result[elements - 1] == expected_value(ranks, turn, static_cast<std::uint32_t>(elements - 1));
  for (std::size_t i = turn % stride; i < elements; i += stride) {
    good &= result[i] == expected_value(ranks, turn, static_cast<std::uint32_t>(i));
  }
  return good;
}

// What all ranks of a host see: the start gate, and the times that rank 0 reads when all are done.
class Shared {
 public:
  static std::size_t bytes(int ranks, int iterations) {
    return kCacheLine * 2 + sizeof(double) * row(iterations) * static_cast<std::size_t>(ranks);
  }
  // REQUIRES: `memory` is zeroed or freshly mapped, aligned to a cache line, and mapped by every rank.
  Shared(void* memory, int ranks, int iterations)
      : gate_(static_cast<Gate*>(memory)),
        times_(reinterpret_cast<double*>(static_cast<char*>(memory) + kCacheLine * 2)),
        ranks_(ranks),
        iterations_(iterations) {}

  // Leaves on every rank within the time of one cache miss, or of being scheduled where ranks outnumber cores. Yields,
  // because the rank everybody waits for may need this core.
  void gate() {
    const std::uint32_t turn = gate_->turn.load(std::memory_order_relaxed);
    if (gate_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(ranks_)) {
      gate_->arrived.store(0, std::memory_order_relaxed);
      gate_->turn.store(turn + 1, std::memory_order_release);
      return;
    }
    while (gate_->turn.load(std::memory_order_acquire) == turn) sched_yield();
  }

  void record(int rank, int iteration, double ms) {
    times_[row(iterations_) * static_cast<std::size_t>(rank) + static_cast<std::size_t>(iteration)] = ms;
  }
  void report_wrong() { gate_->wrong.fetch_add(1); }
  std::uint32_t wrong() const { return gate_->wrong.load(); }

  std::vector<double> slowest_rank_per_iteration() const {
    std::vector<double> slowest(static_cast<std::size_t>(iterations_), 0.0);
    for (int rank = 0; rank < ranks_; ++rank) {
      const double* times = times_ + row(iterations_) * static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
    }
    return slowest;
  }

 private:
  struct Gate {
    std::atomic<std::uint32_t> turn;
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> wrong;
  };
  // Whole cache lines per rank: recording a time must not slow a neighbour that still reduces.
  static std::size_t row(int iterations) {
    constexpr std::size_t per_line = kCacheLine / sizeof(double);
    return (static_cast<std::size_t>(iterations) + per_line - 1) / per_line * per_line;
  }

  Gate* gate_;
  double* times_;
  int ranks_;
  int iterations_;
};

// One rank's share of the rotated memory, touched before the first repetition.
class Buffers {
 public:
  Buffers(const Options& options, int ranks) : step_(round_up(options.bytes, kCacheLine)), in_place_(options.in_place) {
    const std::size_t slot = step_ * (in_place_ ? 1 : 2);
    const std::size_t share = options.buffers_bytes / static_cast<std::size_t>(ranks);
    slots_ = std::max<std::size_t>(2, (share + slot - 1) / slot);
    const std::size_t total = round_up(slots_ * slot, kHugePage) + kHugePage;
    void* memory = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the buffers");
    if (options.huge_pages) madvise(memory, total, MADV_HUGEPAGE);
    base_ = reinterpret_cast<char*>(round_up(reinterpret_cast<std::size_t>(memory), kHugePage));
    std::memset(base_, 1, slots_ * slot);
  }

  float* input(int iteration) const { return reinterpret_cast<float*>(base_ + place(iteration)); }
  float* result(int iteration) const {
    return in_place_ ? input(iteration) : reinterpret_cast<float*>(base_ + place(iteration) + step_);
  }
  std::size_t bytes() const { return slots_ * step_ * (in_place_ ? 1 : 2); }

 private:
  static constexpr std::size_t kHugePage = 2 << 20;
  static std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
  std::size_t place(int iteration) const {
    return (static_cast<std::size_t>(iteration) % slots_) * step_ * (in_place_ ? 1 : 2);
  }

  std::size_t step_;
  std::size_t slots_ = 0;
  bool in_place_;
  char* base_ = nullptr;
};

// `reduce(input, result)` blocks until the result is readable; `barrier()` is the peer's own.
template <class Reduce, class Barrier>
void repeat(const Options& options, int rank, int ranks, const Buffers& buffers, Shared& shared, Reduce reduce,
            Barrier barrier) {
  const std::size_t elements = options.elements();
  const std::size_t spot = std::max<std::size_t>(1, elements / 1024);
  for (int turn = 0; turn < options.warmup + options.iterations; ++turn) {
    float* input = buffers.input(turn);
    float* result = buffers.result(turn);
    write_input(input, elements, rank, turn);
    barrier();
    shared.gate();
    const double start = now_ms();
    reduce(input, result);
    const double end = now_ms();
    if (turn >= options.warmup) shared.record(rank, turn - options.warmup, end - start);
    barrier();
    if (!is_sum(result, elements, ranks, turn, turn == 0 ? 1 : spot)) shared.report_wrong();
  }
  barrier();
}

inline double percentile(const std::vector<double>& sorted, double part) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::lround(part * last))];
}

// For rank 0, after repeat(): one JSON line on stdout. Returns the exit status.
inline int print_result(const char* peer, const std::string& version, const Options& options, int ranks,
                        const Buffers& buffers, const Shared& shared) {
  std::vector<double> times = shared.slowest_rank_per_iteration();
  std::sort(times.begin(), times.end());
  const bool verified = shared.wrong() == 0;
  std::printf(
      "{\"peer\":\"%s\",\"op\":\"allreduce\",\"ranks\":%d,\"bytes\":%zu,\"dtype\":\"f32\",\"iterations\":%d,"
      "\"in_place\":%s,\"buffers_bytes\":%zu,\"min_ms\":%.6f,\"p50_ms\":%.6f,\"p99_ms\":%.6f,\"verified\":%s,"
      "\"version\":\"%s\"}\n",
      peer, ranks, options.bytes, options.iterations, options.in_place ? "true" : "false",
      buffers.bytes() * static_cast<std::size_t>(ranks), times.front(), percentile(times, 0.5), percentile(times, 0.99),
      verified ? "true" : "false", version.c_str());
  std::fflush(stdout);
  return verified ? 0 : 1;
}

}  // namespace peers
