// Runs many seeds, or one with its trace:
//   job_simulation [--seeds N] [--first SEED] [--jobs N] [--program NAME]
//   job_simulation [--program NAME] --trace SEED
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "simulation/job.h"

namespace {

using Program = std::optional<pliant::sim::Script::Kind>;

int run_range(std::uint64_t first, std::uint64_t seeds, std::uint64_t stride, Program program) {
  int failed = 0;
  for (auto seed = first; seed < first + seeds; seed += stride) {
    auto outcome = pliant::sim::simulate_job({seed, false, program});
    if (outcome.failure.empty()) continue;
    ++failed;
    fmt::print("seed {}: {}\n", seed, outcome.failure);
    std::fflush(stdout);
    if (failed >= 200) break;
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seeds = 1000, first = 0, jobs = 2;
  Program program;
  for (int i = 1; i + 1 < argc; i += 2) {
    auto value = std::strtoull(argv[i + 1], nullptr, 10);
    if (!std::strcmp(argv[i], "--seeds")) seeds = value;
    if (!std::strcmp(argv[i], "--first")) first = value;
    if (!std::strcmp(argv[i], "--jobs")) jobs = value;
    if (!std::strcmp(argv[i], "--program")) program = pliant::sim::program_named(argv[i + 1]);
    if (!std::strcmp(argv[i], "--trace")) {
      auto outcome = pliant::sim::simulate_job({value, true, program});
      fmt::print("{}\n{}\n", outcome.trace, outcome.failure.empty() ? "OK" : "FAILED: " + outcome.failure);
      return outcome.failure.empty() ? 0 : 1;
    }
  }
  auto began = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (std::uint64_t job = 0; job < jobs; ++job) {
    auto child = fork();
    if (child == 0) _exit(run_range(first + job, seeds - std::min(seeds, job), jobs, program) ? 1 : 0);
    children.push_back(child);
  }
  bool ok = true;
  for (auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("{}: {} seeds in {:.1f} s\n", ok ? "OK" : "FAILED", seeds, took);
  return ok ? 0 : 1;
}
