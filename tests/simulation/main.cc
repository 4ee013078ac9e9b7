// Runs many seeds, or one with its trace:
//   job_simulation [--seeds N] [--first SEED] [--jobs N] [--program NAME] [--coverage]
//   job_simulation [--program NAME] [--plant NAME] --trace SEED
// or shows that a known mistake is found, or each of them:
//   job_simulation --plant NAME [--seeds N]
//   job_simulation --plants [--seeds N]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "simulation/coverage.h"
#include "simulation/fleet.h"
#include "simulation/job.h"
#include "simulation/plants.h"

namespace {

using namespace pliant::sim;

constexpr std::uint64_t kEnough = 50;  // times that a row has to be taken, and a fault has to meet a state

struct Wishes {
  FleetOptions fleet;
  std::optional<Script::Kind> program;
  std::optional<std::uint64_t> trace;
  const Plant* plant = nullptr;
  bool coverage = false, plants = false;
};

[[noreturn]] void give_up(std::string_view why) {
  fmt::print(stderr, "job_simulation: {}\n", why);
  std::exit(2);
}

void take_wish(Wishes& wishes, std::string_view flag, const char* value) {
  auto number = std::strtoull(value, nullptr, 10);
  if (flag == "--seeds") {
    wishes.fleet.seeds = number;
  } else if (flag == "--first") {
    wishes.fleet.first = number;
  } else if (flag == "--jobs") {
    wishes.fleet.jobs = std::max(number, 1ULL);
  } else if (flag == "--trace") {
    wishes.trace = number;
  } else if (flag == "--program") {
    if (!(wishes.program = program_named(value))) give_up(fmt::format("there is no program '{}'", value));
  } else if (flag == "--plant") {
    if (!(wishes.plant = plant_named(value))) give_up(fmt::format("there is no plant '{}'", value));
  } else {
    give_up(fmt::format("unknown: {}", flag));
  }
}

Wishes wishes_in(int argc, char** argv) {
  Wishes wishes;
  for (int i = 1; i < argc; ++i) {
    std::string_view flag = argv[i];
    if (flag == "--coverage") {
      wishes.coverage = true;
    } else if (flag == "--plants") {
      wishes.plants = true;
    } else {
      if (i + 1 == argc) give_up(fmt::format("{} needs a value", flag));
      take_wish(wishes, flag, argv[++i]);
    }
  }
  return wishes;
}

int show(const Wishes& wishes) {
  if (wishes.plant) put_in(wishes.plant);
  auto outcome = simulate_job({*wishes.trace, true, wishes.program});
  fmt::print("{}\n{}\n", outcome.trace, outcome.failure.empty() ? "OK" : "FAILED: " + outcome.failure);
  return outcome.failure.empty() ? 0 : 1;
}

/// Whether it was found.
bool look_for(const Wishes& wishes, const Plant& plant) {
  auto found = find_plant(plant, wishes.fleet, wishes.program);
  if (found)
    fmt::print("{:24} found after {} seeds: {}\n", plant.name, found->seeds, found->failure.substr(0, 110));
  else
    fmt::print("{:24} NOT FOUND in {} seeds: {}\n", plant.name, wishes.fleet.seeds, plant.what);
  std::fflush(stdout);
  return found.has_value();
}

int look_for_all(const Wishes& wishes) {
  std::size_t found = 0;
  for (const auto& plant : plants()) found += look_for(wishes, plant);
  fmt::print("{} of {} mistakes were found\n", found, plants().size());
  return found == plants().size() ? 0 : 1;
}

int run(const Wishes& wishes) {
  Coverage coverage;
  auto began = std::chrono::steady_clock::now();
  auto one = [&](std::uint64_t seed) {
    return simulate_job({seed, false, wishes.program, wishes.coverage ? &coverage : nullptr}).failure;
  };
  auto failed = [](std::uint64_t seed, const std::string& failure) {
    fmt::print("seed {}: {}\n", seed, failure);
    std::fflush(stdout);
  };
  bool ok = run_fleet(wishes.fleet, one, failed) == 0;
  auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (wishes.coverage) {
    fmt::print("{}\n", coverage.text());
    auto gaps = coverage.gaps(kEnough);
    for (const auto& gap : gaps) fmt::print("{}\n", gap);
    ok = ok && gaps.empty();
  }
  fmt::print("{}: {} seeds in {:.1f} s\n", ok ? "OK" : "FAILED", wishes.fleet.seeds, took);
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto wishes = wishes_in(argc, argv);
  if (wishes.trace) return show(wishes);
  if (wishes.plants) return look_for_all(wishes);
  if (wishes.plant) return look_for(wishes, *wishes.plant) ? 0 : 1;
  return run(wishes);
}
