// Measures throughput with a model that does nothing but take time and move bytes.
//
//   pliant run -n 2 -- synthetic --parameters 100Mi --compute-ms 20 --sleep
#include <pliant/pliant.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <thread>

namespace {

struct Options {
  std::uint64_t parameters = 25 << 20;
  std::uint64_t state = 0;
  double compute_ms = 10;
  int knee = 0;
  double contention = 0, crosstalk = 0;
  std::string slow;
  bool sleep = false;
  std::uint64_t batch = 32;
  std::uint64_t steps = 100;
  std::uint64_t samples = 0;
  std::uint64_t warmup = 10;
  int buckets = 8;
};

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kSamples = 1 << 20;  // that there are

/// A worker that is slower than the others, from some step on: "2:0.5@50".
struct Slowness {
  unsigned long long worker = 0, step = 0;
  double speed = 1;

  static Slowness parse(const std::string& text) {
    Slowness slow;
    char rest = 0;
    auto read = std::sscanf(text.c_str(), "%llu:%lf@%llu%c", &slow.worker, &slow.speed, &slow.step, &rest);
    bool fits = (read == 3 || (read == 2 && text.find('@') == std::string::npos)) && slow.speed > 0;
    if (!text.empty() && !fits) throw std::invalid_argument("--slow " + text + ": not WORKER:SPEED[@STEP]");
    return slow;
  }
  double at(std::uint64_t who, std::uint64_t now) const { return who == worker && now >= step ? speed : 1; }
};

/// Mean and variance of figures that are not kept: a worker may make steps for days.
class Rates {
 public:
  void add(double rate) {
    auto before = rate - mean_;
    mean_ += before / static_cast<double>(++count_);
    squares_ += before * (rate - mean_);
  }
  double mean() const { return mean_; }
  double variance() const { return count_ ? squares_ / static_cast<double>(count_) : 0; }

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  // squares of the distances from the mean
};

/// Takes the time of a forward and backward pass: by work on this core, or by sleeping, as an accelerator would.
void compute(const Options& options, int workers, double share) {
  auto crowd = static_cast<double>(workers) / std::max(options.knee, 1);
  if (options.knee > 0 && crowd > 1) share *= crowd * crowd;
  share *= 1 + options.contention * (workers - 1) + options.crosstalk * workers * (workers - 1);

  auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double, std::milli>(options.compute_ms * share));
  if (options.sleep) {
    std::this_thread::sleep_until(end);
    return;
  }
  volatile double x = 1;
  while (Clock::now() < end)
    for (int i = 0; i < 200; ++i) x = std::sqrt(x + 1);
}

void run(const Options& options) {
  auto session = pliant::Session::join();
  session.batch({.local = options.batch});
  auto slowness = Slowness::parse(options.slow);
  pliant::ElasticSampler sampler(session, options.samples ? options.samples : kSamples);
  auto work = options.samples ? pliant::StepsOptions{.epochs = 1}
                              : pliant::StepsOptions{.steps = options.warmup + options.steps};
  auto count = options.parameters / sizeof(float);
  auto gradients = session.allocate("gradients", count * sizeof(float));
  auto values = gradients.input<float>();
  std::vector<float> state(options.state / sizeof(float));
  if (!state.empty()) session.share("state", pliant::state_of(std::span(state)));

  Clock::time_point began = Clock::now();
  Rates rates;
  auto last = began;
  for (auto step : session.steps(work)) {
    // Backward fills one bucket after the other; each is reduced while the next is computed.
    auto part = static_cast<double>(sampler.next().size()) / static_cast<double>(options.batch);
    part /= slowness.at(session.worker(), step.index());
    std::vector<pliant::Reduction<float>> reductions;
    for (int b = 0; b < options.buckets; ++b) {
      compute(options, session.size(), part / options.buckets);
      auto first = count * b / options.buckets;
      auto size = count * (b + 1) / options.buckets - first;
      for (std::size_t i = first; i < first + size; i += 1024) values[i] = static_cast<float>(session.rank() + 1);
      if (size)
        reductions.push_back(
            session.reduce<float>("bucket" + std::to_string(b), gradients, pliant::Op::mean, first, size));
    }
    for (auto& reduction : reductions) reduction.wait();
    auto now = Clock::now();
    auto taken = std::chrono::duration<double>(now - last).count();
    last = now;
    if (step.index() >= options.warmup) rates.add(static_cast<double>(options.batch) / taken);
    step.log("step_ms", taken * 1e3);
    if (session.leader() && step.index() % 10 == 9)
      std::printf("step %4llu  %.1f samples/s per worker\n", static_cast<unsigned long long>(step.index() + 1),
                  static_cast<double>(options.batch) / taken);
  }
  auto mean = session.average("rate", rates.mean());
  if (session.leader()) {
    std::printf("samples/s per worker: %.1f +-%.1f\n", mean, 1.96 * std::sqrt(rates.variance()));
    std::printf("total samples/s on %d worker%s: %.1f\n", session.size(), session.size() == 1 ? "" : "s",
                mean * session.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measures training throughput with synthetic work.\n\nExamples:\n"
      "  pliant run -n 2 -- synthetic\n"
      "  pliant run -n 4 -- synthetic --parameters 104857600 --compute-ms 20 --sleep"};
  app.add_option("--parameters", options.parameters, "bytes of parameters (as 100MiB or a number)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{4096}, std::uint64_t{16} << 30));
  app.add_option("--state", options.state, "bytes of state that newcomers are given")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{16} << 30));
  app.add_option("--compute-ms", options.compute_ms, "time of a forward and backward pass")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--knee", options.knee, "more workers than this slow each other down; 0: never")
      ->capture_default_str();
  app.add_option("--contention", options.contention, "each further worker makes steps longer by this part")
      ->capture_default_str();
  app.add_option("--crosstalk", options.crosstalk, "and each further pair of them by twice this")
      ->capture_default_str();
  app.add_option("--slow", options.slow, "a worker with a part of the speed, from a step on: 2:0.5@50")
      ->option_text("WORKER:SPEED[@STEP]");
  app.add_flag("--sleep", options.sleep, "spend it sleeping instead of working");
  app.add_option("--batch", options.batch, "samples per worker and step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--samples", options.samples, "so many samples, in as many steps as it takes, instead of --steps");
  app.add_option("--warmup", options.warmup, "steps before measuring")->capture_default_str();
  app.add_option("--buckets", options.buckets, "reductions per step")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "synthetic: %s\n", error.what());
    return 1;
  }
  return 0;
}
