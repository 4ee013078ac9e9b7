// Reading a folder's records, file by file and line by line, within bounded memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/record_line.h"

namespace pliant::session {

/// Faults in words: the first hundred, then a count.
class Faults {
 public:
  /// Control characters, which file names may contain, are replaced.
  void add(std::string fault);
  std::vector<std::string> take() &&;

 private:
  std::vector<std::string> faults_;
  std::uint64_t more_ = 0;
};

/// A file as it was when the folder was listed; what is appended later is not looked at.
struct RecordFile {
  std::string path;
  std::string name;
  std::uint64_t size = 0;
};
/// Every *.jsonl of `dir`, by name. What cannot be looked at is a fault; a folder that cannot be is an error.
Result<std::vector<RecordFile>> list_record_files(const std::string& dir, Faults& faults);

/// A file's lines.
class LineSource {
 public:
  enum class Found { line, too_long, torn, end, failed };

  static Result<LineSource> open(const RecordFile& file);
  /// The next line: text() is valid until the next call. `torn`: the file ends without a newline.
  Found next();
  const std::string& text() const { return text_; }
  std::uint64_t number() const { return number_; }

 private:
  LineSource(Fd fd, std::uint64_t size) : fd_(std::move(fd)), left_(size) {}
  bool fill();

  Fd fd_;
  std::uint64_t left_;        // bytes of the file that were not read yet
  std::vector<char> buffer_;  // [at_, buffer_.size()) is still to be used
  std::size_t at_ = 0;
  bool failed_ = false;
  std::string text_;
  std::uint64_t number_ = 0;
};

/// Orders the lines of a job: (lineage, step).
using Place = std::pair<std::uint64_t, std::uint64_t>;

/// A step's line, and where it is.
struct Entry {
  Line line;
  std::string where;  ///< "worker-2.jsonl:17"
  const StepRecord& record() const { return line.record; }
  Place place() const { return {line.record.lineage, line.record.step}; }
};

/// The steps of one file: of one worker, ascending. Whatever else is in it is a fault and left out.
class StepSource {
 public:
  /// `faults` may be nullptr: they were reported before.
  static Result<StepSource> open(const RecordFile& file, Faults* faults);
  std::optional<Entry> next();
  std::uint64_t torn_lines() const { return torn_lines_; }

 private:
  StepSource(LineSource lines, std::string name, Faults* faults)
      : lines_(std::move(lines)), name_(std::move(name)), faults_(faults) {}
  std::string where() const;
  void fault(const std::string& what);
  std::optional<Entry> step_of_line();
  bool follows(const StepRecord& record);

  LineSource lines_;
  std::string name_;
  Faults* faults_;
  std::uint64_t torn_lines_ = 0;
  bool begun_ = false;
  std::uint64_t worker_ = 0;
  Place last_{};
};

}  // namespace pliant::session
