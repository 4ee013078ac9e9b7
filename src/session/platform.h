// What a worker's session takes from the machine that it runs on: time, waiting, memory, connections, its environment.
// Production has the machine's own; a simulation has a twin of each, so that the same session runs in both.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/condition.h"
#include "base/result.h"
#include "collective/group.h"
#include "record/recorder.h"
#include "session/journal.h"
#include "session/notice.h"
#include "session/roster.h"
#include "step/table.h"

namespace pliant::session {

using Regions = std::vector<std::shared_ptr<collective::Region>>;

/// What a view leaves behind when another follows it.
struct Remains {
  std::unique_ptr<collective::Group> group;
  Regions regions;
};

/// Gives memory back and makes memory beforehand, beside the training: that takes longer than to go on without.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  virtual void take(Remains remains) = 0;
  /// For the view that may follow, once what was taken before is gone.
  virtual void make_spares(const Regions& regions) = 0;
};

class Platform {
 public:
  virtual ~Platform() = default;
  /// The calling thread's: the machine's own, unless a PlatformScope says otherwise.
  static Platform& current();

  virtual const Clock& clock() const = 0;
  /// Since 1970: for people and records, not for waiting.
  virtual double unix_time() const = 0;
  virtual std::unique_ptr<Condition> condition() = 0;
  /// An environment variable, if set and not empty.
  virtual std::optional<std::string> variable(const char* name) const = 0;
  /// The way into the job that this process was started for by an agent; nothing: there is none.
  virtual Result<std::optional<RosterOptions>> invitation() = 0;
  /// Collectives of a worker that is alone.
  virtual Result<std::unique_ptr<collective::Group>> group_of_one(collective::Team team) = 0;
  virtual std::unique_ptr<Reclaimer> reclaimer() = 0;
  /// Where this worker's records go; nullptr: nowhere.
  virtual Result<std::unique_ptr<record::RecordSink>> records(const JournalOptions& options, std::uint64_t worker) = 0;
  /// Where the job's checkpoints are.
  virtual CheckpointStorage& checkpoints() = 0;
  /// While it lives, a request to end this process is told by it instead of ending the process.
  virtual std::unique_ptr<Notice> notice() = 0;
  /// Hears which rows of its tables a session takes; nullptr: nobody does.
  virtual step::TransitionWatch* transitions() { return nullptr; }
  /// The others have work to do; this worker has none.
  virtual void lower_priority() = 0;
};

/// How long another host may be silent, if the user has said so.
std::optional<std::chrono::milliseconds> silence_wanted();
/// PLIANT_NETWORK: "trusted", or "protected", which it is without that.
Result<bool> network_is_trusted();

/// Sets the calling thread's platform as long as it lives.
class PlatformScope {
 public:
  explicit PlatformScope(Platform& platform);
  ~PlatformScope();
  PlatformScope(const PlatformScope&) = delete;
  PlatformScope& operator=(const PlatformScope&) = delete;

 private:
  Platform* before_;
};

}  // namespace pliant::session
