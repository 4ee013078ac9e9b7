// Finds a job's size while it trains: measures, decides now and then, asks, and waits for what it has asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "scale/throughput.h"

namespace pliant::scale {

struct EngineOptions {
  std::uint64_t every = 10;  ///< steps between decisions
  std::uint64_t skip = 1;    ///< steps after a transition that do not count
  /// Once the search stays where it is, it is over, until the rate there differs by so much from what it was for as
  /// long as a size is measured; 0: it goes on for ever.
  double drift = 0;
  std::uint64_t window = 4;
  std::uint64_t patience = 200;  ///< steps until a wish that was not fulfilled is given up; doubles each time
};

class Engine {
 public:
  /// What size to try next, from what was measured and the size there is; nothing: it has to be measured longer.
  using Search = std::function<std::optional<int>(const Throughputs&, int)>;
  Engine(EngineOptions options, Search search) : options_(options), search_(std::move(search)) {}

  /// After each step. The number of workers to ask for, or nothing. `rate`: samples per second in this step, which had
  /// `samples`.
  std::optional<int> after_step(int workers, double rate, double samples = 0);

  const Throughputs& seen() const { return seen_; }
  bool pending() const { return wanted_ != 0; }
  bool settled() const { return settled_ != 0; }
  /// The search goes on after all, with all that was measured.
  void look_again() { settled_ = 0; }
  /// Since the last time it changed anything: what it has found is found.
  std::uint64_t steady() const { return steps_ - changed_; }

  /// All it knows, to move it to another worker.
  std::string save() const;
  void load(std::string_view saved);

 private:
  void settle(int workers);
  bool stays(double rate);
  int ask(int workers);

  EngineOptions options_;
  Search search_;
  Throughputs seen_;
  std::uint64_t steps_ = 0, changed_ = 0;
  int workers_ = 0;  // of the step before
  int wanted_ = 0;   // that is waited for; 0: nothing
  std::uint64_t asked_ = 0, patience_ = 0;
  int settled_ = 0;    // where the search is over; 0: it is not
  double found_ = 0;   // the rate there, then
  double recent_ = 0;  // the mean of the last window, as it fades
};

}  // namespace pliant::scale
