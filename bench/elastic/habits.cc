// Programs as users write them, each with one habit that a training system may trip over; habits.py kills workers of
// theirs. A step reduces a gradient and applies it, so that `pliant verify` has something to compare.
//
//   pliant run -n 3 -- habits evaluate --seconds 10
#include <pliant/pliant.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

struct Options {
  std::string habit;
  std::uint64_t steps = 400;      // about, with three workers
  std::uint64_t bytes = 1 << 20;  // of the gradient
  double seconds = 60;            // of an evaluation
  std::uint64_t at = 100;         // the step in which the habit shows
  unsigned long long who = 1;     // the worker that has it, where only one does
};

constexpr std::uint64_t kBatch = 32;
constexpr int kInFlight = 1000;

class Program {
 public:
  explicit Program(const Options& options)
      : options_(options),
        session_(pliant::Session::join()),
        sampler_(session_, options.steps * kBatch * 3, {.local_batch = kBatch}),
        gradients_(session_.allocate("gradients", options.bytes)),
        weights_(1024, 1.0F),
        small_(kInFlight, 1.0F) {
    session_.share("weights", pliant::state_of(std::span(weights_)));
  }

  void run() {
    if (options_.habit == "twice") loop({.epochs = 1, .steps = options_.at});
    loop({.epochs = 1});
    if (session_.leader() && session_.outcome() == pliant::Outcome::finished) std::puts("done");
  }

 private:
  void loop(const pliant::StepsOptions& work) {
    for (auto step : session_.steps(work)) {
      auto samples = sampler_.next();
      std::this_thread::sleep_for(5ms);
      auto input = gradients_.input<float>();
      for (std::size_t i = 0; i < input.size(); i += 1024) input[i] = static_cast<float>(samples.size());
      auto mean = session_.reduce<float>("gradients", gradients_, pliant::Op::weighted_mean);
      habit(step);
      auto update = mean.wait();
      for (std::size_t i = 0; i < std::min(weights_.size(), update.size()); ++i) weights_[i] -= 1e-4F * update[i];
    }
  }

  bool mine() const { return session_.worker() == options_.who; }

  void habit(const pliant::Step& step) {
    const bool due = step.index() == options_.at;
    const auto& habit = options_.habit;
    if (habit == "throw" && due && mine()) throw std::runtime_error("a mistake of the program");
    if (habit == "exit" && due && mine()) std::exit(0);
    if (habit == "fork" && step.index() % 10 == 5) fork_and_forget(step.index());
    if (habit == "evaluate" && due && session_.leader()) evaluate();
    if (habit == "in-flight") keep_many_in_flight();
  }

  /// Children that end in all the ways in which children end, with everything that they have inherited.
  static void fork_and_forget(std::uint64_t step) {
    auto child = fork();
    if (child == 0) {
      if (step % 3 == 0) std::exit(0);
      if (step % 3 == 1) _exit(0);
      execlp("true", "true", nullptr);
      _exit(127);
    }
    if (child > 0) waitpid(child, nullptr, 0);
    if (std::system("true") != 0) throw std::runtime_error("no shell");
  }

  void evaluate() const {
    std::puts("evaluating");
    std::fflush(stdout);
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.seconds);
    volatile double x = 1;
    while (std::chrono::steady_clock::now() < end)
      for (int i = 0; i < 100000; ++i) x = std::sqrt(x + 1);
    std::puts("evaluated");
    std::fflush(stdout);
  }

  /// Each element by itself, all at once; those of the last step are awaited before they are submitted again.
  void keep_many_in_flight() {
    for (auto& reduction : many_) reduction.wait();
    many_.clear();
    for (std::size_t i = 0; i < small_.size(); ++i) {
      small_[i] = 1;
      many_.push_back(session_.reduce<float>("small" + std::to_string(i), std::span(&small_[i], 1)));
    }
  }

  Options options_;
  pliant::Session session_;
  pliant::ElasticSampler sampler_;
  pliant::Region gradients_;
  std::vector<float> weights_, small_;
  std::vector<pliant::Reduction<float>> many_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Trains as users do.\n\nExample:\n  pliant run -n 3 -- habits fork"};
  app.add_option("habit", options.habit, "plain, throw, exit, fork, twice, evaluate or in-flight")
      ->required()
      ->check(CLI::IsMember({"plain", "throw", "exit", "fork", "twice", "evaluate", "in-flight"}));
  app.add_option("--steps", options.steps, "about so many with three workers")->capture_default_str();
  app.add_option("--bytes", options.bytes, "of the gradient (as 100MiB or a number)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--seconds", options.seconds, "of the evaluation")->capture_default_str();
  app.add_option("--at", options.at, "the step in which the habit shows")->capture_default_str();
  app.add_option("--who", options.who, "the worker that has it")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Program(options).run();  // a mistake of the program ends it as any other would end
}
