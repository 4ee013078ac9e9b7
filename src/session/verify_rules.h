// What must hold for the records of a job. Each rule sees the job's steps once, in their order, and remembers only what
// it needs to judge the next one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "session/record_files.h"

namespace pliant::session {

/// All lines of one step that counts, from different files.
using StepLines = std::vector<Entry>;

/// "step 7", or "step 7 of lineage 1".
std::string name_of(const StepRecord& record);

/// All workers recorded the same. Returns the line that most of them agree with: the other rules go by it.
const Entry& agreed(const StepLines& lines, Faults& faults);

/// No step is missing.
class GapRule {
 public:
  explicit GapRule(Faults& faults) : faults_(faults) {}
  void see(const StepRecord& step);

 private:
  Faults& faults_;
  std::uint64_t next_ = 0;
};

/// Views only grow; each has one hash, one size and one worker per rank; only members contribute; a member records
/// every step from its first to its last.
///
/// Who is a member is known only from what was recorded: a worker that died before its first record in a view is known
/// by its contributions alone, and is believed as long as the view has room for it. A step that was settled after a
/// death may be the first of its view and hold samples of members of the view before; if views in between left no
/// record, their members are unknown and anybody is believed.
class ViewRule {
 public:
  explicit ViewRule(Faults& faults) : faults_(faults) {}
  void see(const StepLines& lines, const StepRecord& step);
  std::uint64_t views() const { return views_; }

 private:
  struct View {
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    int size = 0;
    std::uint64_t first_step = 0;
    std::map<int, std::uint64_t> workers;  // by rank, as far as they recorded something
    std::map<std::uint64_t, int> ranks;    // the same, by worker
    std::set<std::uint64_t> believed;      // contributors that recorded nothing here
    bool knows(std::uint64_t worker) const { return ranks.contains(worker) || believed.contains(worker); }
    std::size_t known() const { return ranks.size() + believed.size(); }
  };
  struct Attendance {
    std::uint64_t step = 0;  // its last
    std::uint64_t view = 0;
  };

  bool enter(const StepRecord& step);
  void seat(const StepRecord& line);
  void check_room(const StepRecord& step);
  void check_contributors(const StepRecord& step);
  void attend(const Entry& line);
  void check_absence(const Attendance& last, const StepRecord& line);

  Faults& faults_;
  bool begun_ = false;
  std::uint64_t lineage_ = 0;
  std::uint64_t last_step_ = 0;                     // the last one seen
  View before_, now_;                               // `before_` is view 0, of nobody, in a lineage's first view
  std::map<std::uint64_t, Attendance> attendance_;  // by worker, in this lineage
  std::uint64_t views_ = 0;
};

/// Every position of an epoch is used once: exactly, once the next epoch has begun.
class SampleRule {
 public:
  explicit SampleRule(Faults& faults) : faults_(faults) {}
  void see(const StepLines& lines, const StepRecord& step);
  /// After the last step.
  void finish();
  std::uint64_t epochs() const { return epochs_; }
  std::uint64_t samples() const { return samples_; }

 private:
  struct Use {
    std::uint64_t end = 0;
    std::uint64_t first_step = 0, last_step = 0;  // differ only after neighbours were joined
  };

  void check_epochs(const StepLines& lines);
  std::vector<Range> ranges_of(const StepRecord& step);
  bool enter(const StepRecord& step);
  void begin_epoch(const StepRecord& step);
  void close_epoch();
  void use(Range range, std::uint64_t step);
  void join_neighbours();
  std::string first_holes() const;

  Faults& faults_;
  std::uint64_t epoch_ = 0;
  std::uint64_t dataset_ = 0;          // of this epoch; 0 before its first step
  std::map<std::uint64_t, Use> used_;  // disjoint ranges of this epoch, by their begin
  std::size_t join_at_ = 1 << 16;      // so many are joined to fewer
  std::uint64_t covered_ = 0;          // positions in them
  std::uint64_t epochs_ = 0, samples_ = 0;
};

/// No rule: writes down the changes of view, and what they cost.
class ChangeLog {
 public:
  void see(const StepLines& lines, const StepRecord& step);
  std::vector<Change> take() && { return std::move(changes_); }

 private:
  static constexpr std::size_t kMost = 10'000;
  static constexpr std::size_t kUsual = 101;  // steps whose median is the usual time

  double usual() const;

  std::map<std::uint64_t, double> last_;  // by worker: when it recorded the step before
  std::uint64_t view_ = 0;
  std::set<std::uint64_t> present_;  // who recorded a step in this view; the dead miss their last one
  std::vector<double> gaps_;         // of the last steps without a change, as a ring
  std::size_t next_ = 0;
  std::vector<Change> changes_;
};

}  // namespace pliant::session
