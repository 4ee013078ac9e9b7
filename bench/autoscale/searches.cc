// One job of known speed, with a policy or without one, in a cluster that is not there: bench/autoscale/searches.py.
#include <fmt/format.h>
#include <pliant/policy.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <random>

#include "plan/simulation.h"
#include "plan/trace.h"

namespace pliant::bench {
namespace {

struct Flags {
  std::string policy, trace;
  int knee = 0, from = 2, most = 32;
  double steps = 2000, noise = 0;
  unsigned seed = 1;
};

/// Samples per second: as many as there are workers up to the knee, or less and less without one.
double rate(const Flags& flags, int workers) {
  return 100.0 * (flags.knee > 0 ? std::min(workers, flags.knee) : workers / (1 + 0.05 * (workers - 1)));
}

plan::Job job_of(const Flags& flags) {
  plan::Job job;
  job.local_batch = 10;
  job.most = flags.most;
  job.samples = flags.steps * job.local_batch * (flags.knee > 0 ? flags.knee : 16);
  std::uniform_real_distribution<double> noise(1 - flags.noise, 1 + flags.noise);
  job.step_seconds = [&flags, noise, random = std::mt19937(flags.seed)](int workers, double batch) mutable {
    return batch * workers / rate(flags, workers) * noise(random);
  };
  return job;
}

/// Seconds with another size than the last one, or than all that can be had where that is less.
double seconds_away(const plan::Outcome& out, const plan::Trace& trace) {
  int end = 0;
  for (const auto& change : out.changes)
    if (change.workers < trace.at(change.time).capacity || end == 0) end = change.workers;
  double away = 0;
  for (std::size_t i = 0; i < out.changes.size(); ++i) {
    auto until = i + 1 < out.changes.size() ? out.changes[i + 1].time : out.seconds;
    for (auto from = out.changes[i].time; from < until;) {
      auto to = std::min(until, trace.next_after(from));
      if (out.changes[i].workers != std::min(end, trace.at(from).capacity)) away += to - from;
      from = to;
    }
  }
  return away;
}

int run(const Flags& flags) {
  std::ifstream file(flags.trace);
  auto trace = flags.trace.empty() ? plan::Trace(flags.most, 1) : plan::Trace::read(file, flags.trace).or_throw();
  auto policy = flags.policy.empty() ? nullptr : make_policy(flags.policy);
  std::vector<Policy*> policies;
  if (policy) policies.push_back(policy.get());
  auto out = plan::simulate(job_of(flags), trace, flags.from, policies);
  const auto& last = out.changes.back();
  fmt::print(
      "{{\"end\":{},\"step\":{},\"changes\":{},\"steps\":{},\"away\":{},\"worker_seconds\":{},\"seconds\":{}}}\n",
      last.workers, last.step, out.changes.size() - 1, out.steps, seconds_away(out, trace) / out.seconds,
      out.worker_seconds, out.seconds);
  return 0;
}

}  // namespace
}  // namespace pliant::bench

int main(int argc, char** argv) {
  pliant::bench::Flags flags;
  CLI::App app("A job of known speed that looks for its size");
  app.add_option("--policy", flags.policy, "As 'pliant run' takes it; none: the size stays");
  app.add_option("--knee", flags.knee, "Workers beyond this bring nothing; 0: each brings less than the one before");
  app.add_option("--from", flags.from, "Workers at the beginning");
  app.add_option("--max", flags.most, "The most workers");
  app.add_option("--steps", flags.steps, "As many as it has at the knee");
  app.add_option("--noise", flags.noise, "By how much a step's time differs at most, relative");
  app.add_option("--seed", flags.seed, "Of the noise");
  app.add_option("--trace", flags.trace, "Capacity over time: seconds,capacity,price")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  try {
    return pliant::bench::run(flags);
  } catch (const pliant::Failure& problem) {
    fmt::print(stderr, "searches: {}\n", problem.what());
    return 2;
  }
}
