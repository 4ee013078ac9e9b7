#include "apps/pliant/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/pliant/bench_allreduce.h"
#include "base/bytes.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

struct BenchOptions {
  std::vector<int> ranks{2, 4};
  std::vector<std::string> bytes{"1Ki", "1Mi", "16Mi", "100Mi"};
  std::vector<std::string> memory{"registered", "plain"};
  std::string topology = "auto";
  std::string tensors;
  int iterations = 0;
  int load = 0;
  int hosts = 1;
  std::vector<std::string> namespaces;
  std::string network = "protected";
  bool json = false;
};

void print_case(const BenchOptions& options, const AllReduceCase& what, const AllReduceTiming& timing) {
  auto bytes = what.bytes();
  auto memory = what.memory == collective::Memory::registered ? "registered" : "plain";
  auto gbps = static_cast<double>(bytes) / timing.ours.p50_ms / 1e6;
  if (!options.json) {
    fmt::print("{:>5} {:>10} {:>7} {:>10}  {:>10.4f} {:>10.4f} {:>10.4f}  {:>10.4f} {:>6.2f}  {:>8.2f}  {}\n",
               what.ranks, format_bytes(bytes), what.tensors.size(), memory, timing.ours.min_ms, timing.ours.p50_ms,
               timing.ours.p99_ms, timing.limit.p50_ms, timing.limit.p50_ms / timing.ours.p50_ms, gbps,
               timing.verified ? "verified" : "WRONG");
  } else {
    nlohmann::ordered_json line{{"op", "allreduce"},
                                {"ranks", what.ranks},
                                {"hosts", what.hosts},
                                {"bytes", bytes},
                                {"tensors", what.tensors.size()},
                                {"dtype", name_of(what.dtype)},
                                {"memory", memory},
                                {"topology", what.hosts > 1 ? "hierarchical" : "shm"},
                                {"load", what.load},
                                {"min_ms", timing.ours.min_ms},
                                {"p50_ms", timing.ours.p50_ms},
                                {"p99_ms", timing.ours.p99_ms},
                                {"limit_ms", timing.limit.p50_ms},
                                {"limit_min_ms", timing.limit.min_ms},
                                {"alg_gbps", gbps},
                                {"verified", timing.verified}};
    std::cout << line.dump() << '\n';
  }
  std::cout << std::flush;
  std::fflush(stdout);
}

int run_allreduce(const BenchOptions& options) {
  if (options.topology != "auto" && options.topology != "shm")
    throw Failure(Code::invalid, fmt::format("unknown topology '{}': on one host it is shm", options.topology));
  std::vector<std::vector<std::size_t>> messages;
  if (!options.tensors.empty()) {
    if (options.tensors != "resnet50") throw Failure(Code::invalid, "the only list of tensors is resnet50");
    auto all = resnet50_tensors();
    std::size_t total = 0;
    for (auto bytes : all) total += bytes;
    messages = {all, {total}};
  } else {
    for (const auto& text : options.bytes) {
      auto bytes = parse_bytes(text).or_throw();
      if (bytes < 4 || bytes % 4 != 0 || bytes > (16UL << 30))
        throw Failure(Code::invalid, fmt::format("{} is not a multiple of 4 bytes up to 16Gi", text));
      messages.push_back({bytes});
    }
  }
  if (!options.json)
    fmt::print("{:>5} {:>10} {:>7} {:>10}  {:>10} {:>10} {:>10}  {:>10} {:>6}  {:>8}\n", "ranks", "bytes", "tensors",
               "memory", "min ms", "p50 ms", "p99 ms", "limit ms", "of it", "GB/s");
  auto hosts = options.namespaces.empty() ? options.hosts : static_cast<int>(options.namespaces.size());
  for (int ranks : options.ranks)
    if (ranks % hosts != 0) throw Failure(Code::invalid, fmt::format("{} ranks on {} hosts", ranks, hosts));
  bool all_right = true;
  for (int ranks : options.ranks)
    for (const auto& message : messages)
      for (const auto& memory : options.memory) {
        AllReduceCase what;
        what.ranks = ranks;
        what.tensors = message;
        what.memory = memory == "plain" ? collective::Memory::plain : collective::Memory::registered;
        what.iterations = options.iterations;
        what.load = options.load;
        what.hosts = hosts;
        what.namespaces = options.namespaces;
        what.trusted_network = options.network == "trusted";
        auto timing = time_allreduce(what).or_throw();
        print_case(options, what, timing);
        all_right = all_right && timing.verified;
      }
  return all_right ? 0 : 1;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  auto* allreduce = bench->add_subcommand("allreduce", "Time all-reduce between processes");
  allreduce->footer(
      "Every result is verified. Times are maxima over ranks; the limit is a bare loop over the same\n"
      "shared memory in the same run.\n\n"
      "Examples:\n"
      "  pliant bench allreduce\n"
      "  pliant bench allreduce --ranks 2,4 --bytes 1Ki,100Mi --memory registered --json\n"
      "  pliant bench allreduce --ranks 4 --tensors resnet50\n"
      "  pliant bench allreduce --ranks 2 --bytes 1Ki --load 2\n"
      "  pliant bench allreduce --ranks 4 --hosts 2 --bytes 100Mi\n"
      "  pliant bench allreduce --ranks 4 --netns a,b,c,d --bytes 100Mi --network trusted");
  auto options = std::make_shared<BenchOptions>();  // shared: by CLI11's bindings and the action
  allreduce->add_option("--ranks", options->ranks, "Processes, one case each")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  allreduce->add_option("--bytes", options->bytes, "Sizes, as 1Ki, 16Mi or a number")
      ->delimiter(',')
      ->capture_default_str();
  allreduce->add_option("--memory", options->memory, "registered and/or plain")
      ->delimiter(',')
      ->check(CLI::IsMember({"registered", "plain"}))
      ->capture_default_str();
  allreduce->add_option("--topology", options->topology, "auto")->capture_default_str();
  allreduce->add_option("--tensors", options->tensors, "resnet50: its tensors one by one, then all in one");
  allreduce->add_option("--iterations", options->iterations, "Repetitions; by size if not given")
      ->check(CLI::Range(1, 1'000'000));
  allreduce->add_option("--load", options->load, "Strangers that keep a core busy meanwhile")->check(CLI::Range(0, 64));
  allreduce->add_option("--hosts", options->hosts, "As if on so many hosts, over TCP on loopback")
      ->check(CLI::Range(1, 512));
  allreduce
      ->add_option("--netns", options->namespaces, "One host in each of these network namespaces (as root; 'ip netns')")
      ->delimiter(',');
  allreduce->add_option("--network", options->network, "Between hosts: protected (encrypted) or trusted")
      ->check(CLI::IsMember({"protected", "trusted"}))
      ->capture_default_str();
  allreduce->add_flag("--json", options->json, "One JSON object per line");
  allreduce->callback([&action, options] { action = [options] { return run_allreduce(*options); }; });
}

}  // namespace pliant::cli
