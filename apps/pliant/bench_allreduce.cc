#include "apps/pliant/bench_allreduce.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>

#include "apps/pliant/bench_meeting.h"
#include "apps/pliant/process.h"
#include "base/clock.h"
#include "base/system.h"
#include "collective/group.h"
#include "collective/kernels.h"
#include "collective/mesh.h"
#include "net/futex.h"

namespace pliant::cli {
namespace {

using collective::Memory;

constexpr std::size_t kSmallMessage = 64 << 10;
constexpr std::size_t kMostNames = 256;  // registered slots need a name each; a training step has about so many
constexpr std::size_t kAlign = 64;

double now_ms() { return seconds(SteadyClock().now()) * 1e3; }

/// Whole numbers below 16, whose sums over 512 ranks are exact in fp32 and, over few ranks, in fp16 and bf16.
float value_of(int rank, int turn, std::size_t index) {
  auto mixed = (static_cast<std::uint32_t>(index) + static_cast<std::uint32_t>(turn) * 40503U +
                static_cast<std::uint32_t>(rank) * 9176U) *
               2654435761U;
  return static_cast<float>(mixed >> 28);
}

/// What the ranks share besides what they measure: a gate to start together, and the times.
struct Board {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> turn;
  std::atomic<std::uint32_t> wrong;
  int ranks;
  bool sleeps;  // next to strangers, who would take the core of whoever only yields

  void gate() {
    auto now = turn.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(ranks)) {
      arrived.store(0, std::memory_order_relaxed);
      turn.store(now + 1, std::memory_order_release);
      if (sleeps) net::futex_wake(&turn);
      return;
    }
    net::FutexWord word{&turn, now};
    while (turn.load(std::memory_order_acquire) == now) {
      if (sleeps)
        net::futex_wait_any({&word, 1}, std::chrono::milliseconds(100));
      else
        sched_yield();
    }
  }
};

template <class T>
T* share(std::size_t count) {
  void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw Failure(Code::io, "not enough memory for the benchmark's buffers");
  return static_cast<T*>(at);
}

Timing timing_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  auto at = [&](double part) { return times[static_cast<std::size_t>(std::lround(part * double(times.size() - 1)))]; };
  return {times.front(), at(0.5), at(0.99)};
}

/// One rank's part of a case.
class Rank {
 public:
  Rank(const AllReduceCase& what, std::unique_ptr<collective::Group> group, int iterations, std::size_t rotate)
      : what_(what), group_(std::move(group)), iterations_(iterations) {
    for (auto tensor : what_.tensors) {
      offsets_.push_back(slot_bytes_);
      slot_bytes_ += net::round_up(tensor, kAlign);
    }
    auto ranks = static_cast<std::size_t>(what_.ranks);
    bool registered = what_.memory == Memory::registered;
    // Inputs of all ranks, and the two results that they share or the place that each copies to.
    auto per_slot = slot_bytes_ * (registered ? ranks + 2 : ranks);
    slots_ = std::max<std::size_t>(2, (rotate + per_slot - 1) / per_slot);
    if (!registered) {
      plain_.resize(slots_ * slot_bytes_);
      for (std::size_t t = 0; t < what_.tensors.size(); ++t) names_.push_back(fmt::format("p{}", t));
      return;
    }
    slots_ = std::max<std::size_t>(
        1, std::min(slots_, std::max(kMostNames, 4 * what_.tensors.size()) / what_.tensors.size()));
    // A region each: a part of a very large region would not be divided between the ranks (collective/plan.h).
    for (std::size_t i = 0; i < slots_; ++i)
      regions_.push_back(group_->create_region(fmt::format("r{}", i), slot_bytes_).or_throw());
    for (std::size_t i = 0; i < slots_ * what_.tensors.size(); ++i) names_.push_back(fmt::format("t{}", i));
  }

  std::byte* input(int turn) {
    auto at = slot(turn);
    return regions_.empty() ? plain_.data() + at * slot_bytes_ : regions_[at]->input();
  }

  void write(int turn) {
    for (std::size_t t = 0; t < what_.tensors.size(); ++t) {
      auto* to = reinterpret_cast<float*>(input(turn) + offsets_[t]);
      for (std::size_t i = 0; i < what_.tensors[t] / 4; ++i) to[i] = value_of(group_->rank(), turn, i + t);
    }
  }

  /// Submits every tensor and waits for all of them.
  void reduce(int turn) {
    operations_.clear();
    bool alone = what_.tensors.size() == 1;
    for (std::size_t t = 0; t < what_.tensors.size(); ++t) {
      collective::Request request{.dtype = what_.dtype, .count = what_.tensors[t] / size_of(what_.dtype)};
      request.caller_waits = alone;
      if (!regions_.empty()) {
        request.name = names_[slot(turn) * what_.tensors.size() + t];
        request.region = regions_[slot(turn)];
        request.offset = offsets_[t];
      } else {
        request.name = names_[t];
        request.in = request.out = input(turn) + offsets_[t];
      }
      operations_.push_back(group_->submit(request).or_throw());
    }
    for (auto& operation : operations_) group_->wait(operation).or_throw();
  }

  bool right(int turn, std::size_t stride) {
    for (std::size_t t = 0; t < what_.tensors.size(); ++t) {
      const auto* out = regions_.empty() ? reinterpret_cast<const float*>(input(turn) + offsets_[t])
                                         : static_cast<const float*>(operations_[t]->result());
      auto count = what_.tensors[t] / 4;
      for (std::size_t i = static_cast<std::size_t>(turn) % stride; i < count; i += stride) {
        float want = 0;
        for (int rank = 0; rank < what_.ranks; ++rank) want += value_of(rank, turn, i + t);
        if (out[i] != want) return false;
      }
    }
    return true;
  }

  collective::Group& group() { return *group_; }
  std::size_t slots() const { return slots_; }

 private:
  std::size_t slot(int turn) const { return static_cast<std::size_t>(turn) % slots_; }

  const AllReduceCase& what_;
  std::unique_ptr<collective::Group> group_;
  const int iterations_;
  std::vector<std::size_t> offsets_;
  std::size_t slot_bytes_ = 0;
  std::size_t slots_ = 0;
  std::vector<std::shared_ptr<collective::Region>> regions_;  // by slot; none: plain memory
  std::vector<std::byte> plain_;
  std::vector<std::string> names_;
  std::vector<collective::OperationHandle> operations_;
};

/// The memory limit: n inputs and a result in shared memory, each rank sums its part, nothing else.
class BareLoop {
 public:
  BareLoop(std::size_t bytes, int ranks, std::size_t rotate) : bytes_(net::round_up(bytes, 4096)), ranks_(ranks) {
    auto per_slot = bytes_ * static_cast<std::size_t>(ranks + 1);
    slots_ = std::max<std::size_t>(2, std::min<std::size_t>((rotate + per_slot - 1) / per_slot, 4096));
    memory_ = share<std::byte>(per_slot * slots_);
  }
  ~BareLoop() { munmap(memory_, bytes_ * static_cast<std::size_t>(ranks_ + 1) * slots_); }
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;

  /// In each process, before anything is timed: page faults are not the loop's.
  void touch() {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
    madvise(memory_, bytes_ * static_cast<std::size_t>(ranks_ + 1) * slots_, kPopulateWrite);
  }
  void write(int rank, int turn) {
    auto* to = reinterpret_cast<float*>(at(rank, turn));
    std::fill_n(to, bytes_ / 4, static_cast<float>(rank + turn));
  }
  void run(int rank, int turn) {
    auto begin = bytes_ / 64 * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks_) * 64;
    auto end = bytes_ / 64 * static_cast<std::size_t>(rank + 1) / static_cast<std::size_t>(ranks_) * 64;
    std::vector<collective::Contribution> in;
    for (int other = 0; other < ranks_; ++other) in.push_back({at(other, turn) + begin, 1});
    collective::Recipe recipe;
    recipe.streaming = bytes_ >= (4 << 20);
    collective::reduce(recipe, at(ranks_, turn) + begin, in, (end - begin) / 4);
  }

 private:
  std::byte* at(int which, int turn) {
    auto slot = static_cast<std::size_t>(turn) % slots_;
    return memory_ + (slot * static_cast<std::size_t>(ranks_ + 1) + static_cast<std::size_t>(which)) * bytes_;
  }
  std::size_t bytes_;
  int ranks_;
  std::size_t slots_ = 0;
  std::byte* memory_ = nullptr;
};

struct Plan {
  int iterations, warmup;
  std::size_t rotate;
};

Plan plan_for(const AllReduceCase& what) {
  Plan plan{};
  auto bytes = std::max<std::size_t>(what.bytes(), 1);
  plan.iterations =
      what.iterations ? what.iterations : static_cast<int>(std::clamp<std::size_t>((512UL << 20) / bytes, 20, 2000));
  plan.warmup = std::max(3, plan.iterations / 10);
  plan.rotate = what.rotate ? what.rotate : bytes <= kSmallMessage ? 64UL << 20 : 1UL << 30;
  return plan;
}

void run_rank(const AllReduceCase& what, const Plan& plan, Board& board, BareLoop& bare, double* times,
              std::unique_ptr<collective::Group> group) {
  int me = group->rank();
  if (what.hosts == 1) bare.touch();
  Rank rank(what, std::move(group), plan.iterations, plan.rotate);
  // Every slot once, untimed: first uses describe themselves, and memory is touched.
  int first = static_cast<int>(std::max<std::size_t>(rank.slots(), static_cast<std::size_t>(plan.warmup)));
  auto stride = std::max<std::size_t>(1, what.bytes() / 4 / 1024);
  for (int turn = 0; turn < first + plan.iterations; ++turn) {
    bool timed = turn >= first;
    rank.write(turn);
    board.gate();
    auto start = now_ms();
    rank.reduce(turn);
    auto took = now_ms() - start;
    if (timed) times[turn - first] = took;
    board.gate();
    if (!rank.right(turn, turn == 0 ? 1 : stride)) ++board.wrong;
    if (what.hosts > 1) continue;
    if (!timed && turn >= plan.warmup) continue;
    bare.write(me, turn);
    board.gate();
    start = now_ms();
    bare.run(me, turn);
    board.gate();  // readable means that everybody is done
    took = now_ms() - start;
    if (timed) times[plan.iterations + turn - first] = took;
  }
  rank.group().leave();
}

pid_t spawn(const std::function<void()>& body) {
  pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "pliant bench: {}\n", error.what());
    _exit(1);
  }
  _exit(0);
}

}  // namespace

std::size_t AllReduceCase::bytes() const { return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0}); }

Result<AllReduceTiming> time_allreduce(const AllReduceCase& what) {
  auto plan = plan_for(what);
  auto* board = new (share<Board>(1)) Board{{}, {}, {}, what.ranks, what.load > 0};
  auto row = static_cast<std::size_t>(plan.iterations) * 2 + 8;
  auto* times = share<double>(row * static_cast<std::size_t>(what.ranks));
  BareLoop bare(what.bytes(), what.ranks, plan.rotate);

  auto meeting = meet(what);
  std::vector<pid_t> children;
  for (int rank = 0; rank < what.ranks; ++rank)
    children.push_back(spawn([&, rank] {
      auto mesh = mesh_of(meeting, rank);
      collective::Team team{"bench", 1, meeting.members, rank};
      auto group = collective::Group::form(std::move(team), mesh.get()).or_throw();
      run_rank(what, plan, *board, bare, times + row * static_cast<std::size_t>(rank), std::move(group));
    }));
  meeting.listeners.clear();
  meeting.gates.clear();
  std::vector<pid_t> strangers;
  for (int i = 0; i < what.load; ++i)
    strangers.push_back(spawn([] {
      std::atomic<std::uint64_t> turns{0};
      for (;;) turns.fetch_add(1, std::memory_order_relaxed);
    }));
  bool failed = false;
  while (!children.empty()) {
    int status = 0;
    if (std::erase(children, waitpid(-1, &status, 0)) == 0 || status == 0 || failed) continue;
    failed = true;  // the rest may wait in the gate for ever
    for (pid_t child : children) kill_child(child);
  }
  for (pid_t stranger : strangers) {
    kill_child(stranger);
    waitpid(stranger, nullptr, 0);
  }
  AllReduceTiming timing;
  if (!failed) {
    auto slowest = [&](std::size_t from) {
      std::vector<double> worst(static_cast<std::size_t>(plan.iterations), 0.0);
      for (int rank = 0; rank < what.ranks; ++rank)
        for (std::size_t i = 0; i < worst.size(); ++i)
          worst[i] = std::max(worst[i], times[row * static_cast<std::size_t>(rank) + from + i]);
      return timing_of(std::move(worst));
    };
    timing = {slowest(0), slowest(static_cast<std::size_t>(plan.iterations)), board->wrong == 0};
  }
  munmap(times, row * static_cast<std::size_t>(what.ranks) * sizeof(double));
  munmap(board, sizeof(Board));
  if (failed) return Error{Code::internal, "a rank of the benchmark failed"};
  return timing;
}

std::vector<std::size_t> resnet50_tensors() {
  std::vector<std::size_t> tensors;
  auto layer = [&](std::size_t in, std::size_t out, std::size_t kernel) {
    tensors.push_back(in * out * kernel * kernel);       // weights
    for (int i = 0; i < 3; ++i) tensors.push_back(out);  // bias, and BatchNorm's scale and shift
  };
  layer(3, 64, 7);
  std::size_t in = 64;
  std::size_t width = 64;
  for (int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      layer(in, width, 1);
      layer(width, width, 3);
      layer(width, 4 * width, 1);
      if (block == 0) layer(in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  tensors.push_back(2048 * 1000);
  tensors.push_back(1000);
  for (auto& tensor : tensors) tensor *= sizeof(float);
  return tensors;
}

}  // namespace pliant::cli
