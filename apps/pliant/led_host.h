// A host that this process leads to: the process that does, its output, and when to try again if it has ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/console.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/watched_process.h"
#include "base/clock.h"

namespace pliant::cli {

class LedHost {
 public:
  static constexpr int kMostFailures = 3;                      ///< before there is a view
  static constexpr Nanos kGoodRun = std::chrono::seconds(10);  ///< what failed before is forgotten
  /// Between two attempts; it doubles from the first, which is shorter once there is a view.
  static constexpr Nanos kPauseAtStart = std::chrono::seconds(1), kFirstPause = std::chrono::milliseconds(100);
  static constexpr Nanos kLongestPause = std::chrono::seconds(30);

  /// Its output goes to files in `dir`.
  LedHost(HostSlots place, const std::string& dir);

  const std::string& name() const { return place_.name; }
  std::uint32_t slots() const { return wanted_ ? place_.slots : 0; }
  const HostSlots& place() const { return place_; }
  /// "out" or "err".
  std::string output(const char* end) const { return output_ + end; }

  bool wanted() const { return wanted_; }
  void give_up() { wanted_ = false; }
  /// It is there again: what was before is forgotten.
  void want_again();

  bool runs() const { return process_ && process_->running(); }
  /// What it writes goes to the end of its files.
  bool was_led_to() const { return failures_ > 0 || process_; }
  std::optional<WatchedProcess>& process() { return process_; }
  const std::optional<WatchedProcess>& process() const { return process_; }
  /// Since `since`; 0: for so long that nobody knows.
  void led_by(WatchedProcess process, Nanos since);

  /// Its process has failed, by now so many times without a good run in between.
  int failed(Nanos now);
  /// It is not worth a further attempt in a job that has not begun.
  bool hopeless() const { return failures_ >= kMostFailures; }
  /// After a pause, which grows with every failure. Once the job has begun, its workers may have died with the agent,
  /// and the others may have to wait for the next one to prove it.
  void try_again_later(Nanos now, bool has_begun);
  void call_off() { again_at_.reset(); }
  /// If there is to be another attempt, now.
  void hurry(Nanos now) {
    if (again_at_) again_at_ = now;
  }
  bool awaits() const { return again_at_ && wanted_; }
  bool due(Nanos now) const { return again_at_ && now >= *again_at_ && wanted_; }

  /// Copies its output from the beginning, or what comes from now on; the first call holds, whoever writes later.
  /// Returns what is wrong with the files.
  std::vector<Error> follow_output(bool from_now);
  void poll(Console& console);
  /// True once all of it is copied.
  bool drain(Console& console);

 private:
  HostSlots place_;
  std::string output_;
  std::optional<WatchedProcess> process_;  // that leads to its agent
  std::vector<OutputTail> tails_;
  Nanos since_{0};  // when it was led to
  int failures_ = 0;
  std::optional<Nanos> again_at_;
  bool wanted_ = true;
};

}  // namespace pliant::cli
