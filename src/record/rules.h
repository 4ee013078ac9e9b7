// What must hold for the records of a job. Each rule sees the job's steps once, in their order, and remembers only what
// it needs to judge the next one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "record/logs.h"
#include "record/verify.h"

namespace pliant::record {

/// All lines of one step that counts, from different logs.
using StepLines = std::vector<Entry>;

/// "step 7", or "step 7 of lineage 1".
std::string name_of(const StepRecord& record);
/// "step 7", "steps 7 to 9".
std::string steps_in_words(std::uint64_t first, std::uint64_t last);
/// "[0, 64)".
std::string in_words(const Range& range);
/// "[0, 64), [70, 80)", the first few of them.
std::string in_words(const std::vector<Range>& ranges);

/// What a step's lines must have in common.
bool same_content(const StepRecord& one, const StepRecord& other);
/// The same, and what only the lines of one worker have in common. When and by whom they were written does not matter.
bool same_line(const StepRecord& one, const StepRecord& other);
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

/// A step begins with what the step before ended with: the ledger, step number and seed, all of them, and a stripe of
/// the state. A new lineage begins with what its checkpoint kept, so the chain goes on there. Between two loops of a
/// program the state may change, the ledger not.
class ChainRule {
 public:
  explicit ChainRule(Faults& faults) : faults_(faults) {}
  void see(const StepLines& lines, const StepRecord& step);

 private:
  Faults& faults_;
  bool begun_ = false;  // the step before has digests
  std::uint64_t next_ = 0;
  std::uint64_t ledger_ = 0, digest_ = 0;  // after the step before
};

/// What a worker took as its lease is what the step counts as its samples.
class LeaseRule {
 public:
  explicit LeaseRule(Faults& faults) : faults_(faults) {}
  void see(const StepLines& lines, const StepRecord& step);

 private:
  Faults& faults_;
};

/// Views only grow; each has one hash, one size and one worker per rank; samples are dealt among the view of the step
/// before or a later one; only those contribute whom samples were dealt to, and who are members of the step's view or
/// were salvaged by one.
///
/// Who is a member of a view is known as soon as a step's samples were dealt among it. Before that (the first step
/// after a loss, and in records of version 1) it is known only from what was recorded: a worker that died before its
/// first record in a view is known by its contributions alone, and is believed as long as the view has room for it.
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
    std::set<std::uint64_t> members;       // all of them, once they are known
    bool knows(std::uint64_t worker) const {
      return members.empty() ? ranks.contains(worker) || believed.contains(worker) : members.contains(worker);
    }
    std::size_t known() const { return ranks.size() + believed.size(); }
    bool has_room() const { return members.empty() && known() < static_cast<std::size_t>(size > 0 ? size : 0); }
  };

  bool enter(const StepRecord& step);
  void check_lease(const StepRecord& step);
  void learn_members(const StepRecord& step);
  void seat(const StepRecord& line);
  void check_room(const StepRecord& step);
  bool believe(std::uint64_t worker);
  void check_contributors(const StepRecord& step);
  void check_old_contributor(const StepRecord& step, const Contribution& part);
  void check_salvage(const StepRecord& step, const Contribution& part);

  Faults& faults_;
  bool begun_ = false;
  std::uint64_t lineage_ = 0;
  std::uint64_t last_view_ = 0;               // of the step before; 0 in a lineage's first step
  View before_, now_;                         // `before_` is view 0, of nobody, in a lineage's first view
  std::map<std::uint64_t, LeaseView> dealt_;  // the newest views that samples were dealt among, by number
  std::uint64_t views_ = 0;
};

/// A member records every step from its first to its last, once; lines that others wrote for it are its own words. A
/// worker that dies takes at most the lines of its last two steps with it.
class AttendanceRule {
 public:
  explicit AttendanceRule(Faults& faults) : faults_(faults) {}
  void see(const StepLines& lines, const StepRecord& step);
  /// After the last step. `running`: logs may have been read while they were written.
  void finish(bool running);

 private:
  struct Worker {
    std::optional<std::uint64_t> last;  // step that it recorded
    std::uint64_t view = 0;             // of that step
    std::uint64_t missed = 0;           // steps since then that it was a member in
    std::uint64_t last_missed = 0;
  };

  void attend(const StepLines& lines, const Entry& line);
  void check_absence(const Worker& last, const StepRecord& line);
  void miss(const StepRecord& step);
  void check_tail(std::uint64_t worker, Worker& seen);

  Faults& faults_;
  bool begun_ = false;
  std::uint64_t lineage_ = 0;
  std::uint64_t last_step_ = 0;               // the last one seen
  std::uint64_t view_ = 0, view_before_ = 0;  // of this step, and the view before that one
  std::uint64_t view_began_ = 0;              // with this step
  std::uint64_t judged_view_ = 0;             // whose members are known to be in workers_
  std::set<std::uint64_t> present_;           // who has a line of this step
  std::map<std::uint64_t, Worker> workers_;   // of this lineage
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

/// The job said how it ended, right after the last step that is recorded.
class EndRule {
 public:
  /// `open` takes what is missing at the end: faults, or notes if nobody asks for an end.
  EndRule(Faults& faults, Faults& open, Faults& notes) : faults_(faults), open_(open), notes_(notes) {}
  void see(const StepLines& lines, const StepRecord& step);
  /// After the last step. `ended`: workers whose processes an agent saw ending. `told`: how the job ended by the word
  /// of whoever ran it. Its last workers may have been killed before they could say so, or between two loops.
  std::optional<Outcome> finish(const std::vector<EndRecord>& ends, const std::set<std::uint64_t>& ended,
                                std::optional<Outcome> told = {});

 private:
  std::optional<Outcome> outcome(const std::vector<EndRecord>& ends) const;

  Faults& faults_;
  Faults& open_;
  Faults& notes_;
  std::optional<Place> last_;
  int version_ = kVersion;
  std::vector<std::uint64_t> present_;  // who recorded the last step
  std::vector<std::uint64_t> members_;  // of its view, as far as they are known
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

}  // namespace pliant::record
