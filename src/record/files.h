// Reading a folder's records, file by file and line by line, within bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "record/logs.h"

namespace pliant::record {

/// A file as it was when the folder was listed; what is appended later is not looked at.
struct RecordFile {
  std::string path;
  std::string name;
  std::uint64_t size = 0;
};
/// Every *.jsonl of `dir`, by name. What cannot be looked at is a fault; a folder that cannot be is an error.
Result<std::vector<RecordFile>> list_record_files(const std::string& dir, Faults& faults);

/// The lines of a file, as texts.
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

/// The files of a folder as logs, and the lines in them as records.
class FileLogs final : public Logs {
 public:
  /// What cannot be looked at is a fault; a folder that cannot be is an error.
  static Result<FileLogs> open(const std::string& dir, Faults& faults);
  std::size_t size() const override { return files_.size(); }
  const std::string& name(std::size_t index) const override { return files_[index].name; }
  Result<std::unique_ptr<LineFeed>> read(std::size_t index) const override;

 private:
  explicit FileLogs(std::vector<RecordFile> files) : files_(std::move(files)) {}
  std::vector<RecordFile> files_;
};

}  // namespace pliant::record
