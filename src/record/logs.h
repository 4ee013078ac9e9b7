// The logs that a proof is made from, whether they are files or lie in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/record.h"
#include "record/recorder.h"

namespace pliant::record {

/// Faults, or notes, in words: the first hundred, then a count.
class Faults {
 public:
  /// Control characters, which file names may contain, are replaced.
  void add(std::string fault);
  std::vector<std::string> take() &&;

 private:
  std::vector<std::string> faults_;
  std::uint64_t more_ = 0;
};

/// The lines of one log, in the order in which they were written.
class LineFeed {
 public:
  enum class Found { line, unreadable, torn, end };

  virtual ~LineFeed() = default;
  /// `torn`: the log ends in the middle of a line.
  virtual Found next() = 0;
  /// After `line`; valid until the next call.
  virtual const Line& line() const = 0;
  /// After `unreadable`: why.
  virtual const std::string& problem() const = 0;
  /// Of the line found last, from 1.
  virtual std::uint64_t number() const = 0;
};

/// All logs of a job. They can be read more than once, and stay the same meanwhile.
class Logs {
 public:
  virtual ~Logs() = default;
  virtual std::size_t size() const = 0;
  virtual const std::string& name(std::size_t index) const = 0;
  virtual Result<std::unique_ptr<LineFeed>> read(std::size_t index) const = 0;
};

/// Logs in memory, which outlive this.
class MemoryLogs final : public Logs {
 public:
  explicit MemoryLogs(std::span<const MemoryLog> logs) : logs_(logs) {}
  std::size_t size() const override { return logs_.size(); }
  const std::string& name(std::size_t index) const override { return logs_[index].name; }
  Result<std::unique_ptr<LineFeed>> read(std::size_t index) const override;

 private:
  std::span<const MemoryLog> logs_;
};

/// Where a line is: "worker-2.jsonl:17".
struct Spot {
  const std::string* log = nullptr;
  std::uint64_t number = 0;
  std::string text() const;
};

/// A step's line, and where it is. Valid until its source goes on.
struct Entry {
  const StepRecord* step = nullptr;
  Spot where;
  const StepRecord& record() const { return *step; }
};

/// What a log says besides its steps.
struct Remarks {
  std::vector<BeginRecord> begins;
  std::optional<EndRecord> end;              ///< the last word: no step comes after it
  std::vector<std::uint64_t> ended_workers;  ///< whose processes an agent saw ending
  std::string over;                          ///< how the job ended, in an agent's or a coordinator's last word
};

/// The steps of one log: by one writer, ascending. Whatever else is in it is a fault and left out.
class StepSource {
 public:
  /// `faults` and `remarks` may be nullptr: they were taken before.
  static Result<StepSource> open(const Logs& logs, std::size_t index, Faults* faults, Remarks* remarks = nullptr);
  std::optional<Entry> next();
  std::uint64_t torn_lines() const { return torn_lines_; }

 private:
  StepSource(std::unique_ptr<LineFeed> lines, const std::string& name, Faults* faults, Remarks* remarks)
      : lines_(std::move(lines)), name_(&name), faults_(faults), remarks_(remarks) {}
  Spot where() const { return {name_, lines_->number()}; }
  void fault(const std::string& what);
  bool follows(const StepRecord& record);
  void remark(const Line& line);

  std::unique_ptr<LineFeed> lines_;
  const std::string* name_;
  Faults* faults_;
  Remarks* remarks_;
  std::uint64_t torn_lines_ = 0;
  std::optional<std::uint64_t> writer_;
  std::optional<Place> last_;
};

}  // namespace pliant::record
