// The policies of a worker. Each has a thread of its own, so that one that is slow costs nothing as long as it is
// faster than a step, and one that never answers can be left alone.
//
// Threads: all calls from the training thread.
#pragma once

#include <pliant/policy.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pliant::policy {

/// What one policy has to say since it was asked last.
struct Answer {
  Action action;
  Numbers numbers;
  std::string failure;  ///< why it has to go; empty: it may stay
};

class Board {
 public:
  /// `patience`: how long a worker waits for a policy at a step's end.
  explicit Board(std::chrono::milliseconds patience = std::chrono::milliseconds(2000)) : patience_(patience) {}
  /// Waits for hooks that are being called, but not for those that did not come back in time.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void add(std::string name, PolicyPtr policy);
  bool empty() const { return seats_.empty(); }
  std::size_t size() const { return seats_.size(); }
  const std::string& name(std::size_t index) const;

  /// Calls hooks in the background, in this order: what ends, then what begins.
  struct Occasion {
    bool step_ended = false, epoch_ended = false, train_ended = false;
    bool train_begins = false, epoch_begins = false, step_begins = false;
  };
  void tell(const StepReport& report, const Occasion& occasion);
  /// What each has to say to everything it was told. Waits.
  std::vector<Answer> take_answers();
  /// It is not asked any more.
  void dismiss(std::size_t index);
  bool dismissed(std::size_t index) const;

  /// Everything that the policies of another worker need to go on as these do, answers that nobody has taken included.
  std::string save();
  /// Code::mismatch if that worker had other policies.
  Status load(std::string_view saved);

 private:
  struct Seat;
  using SeatPtr = std::shared_ptr<Seat>;  // shared: with its thread, which may outlive this if it does not come back
  static void serve(const SeatPtr& seat);
  bool await(Seat& seat) const;

  std::chrono::milliseconds patience_;
  std::vector<SeatPtr> seats_;
};

/// What several policies want together: `what[i]` is that of `names[i]`. Where they contradict each other, or want what
/// cannot be, nothing is done about it and a complaint says so.
struct Consensus {
  Action action;
  std::vector<std::string> complaints;
};
Consensus reconcile(const std::vector<std::string>& names, const std::vector<Action>& what);

}  // namespace pliant::policy
