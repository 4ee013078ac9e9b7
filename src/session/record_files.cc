#include "session/record_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pliant::session {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFaults = 100;
constexpr std::size_t kChunk = 1 << 16;

/// False with a fault if it is no file that can be read like one.
bool look_at(const fs::path& path, RecordFile& file, Faults& faults) {
  std::error_code failed;
  file.path = path.string();
  file.name = path.filename().string();
  if (!fs::is_regular_file(path, failed)) {
    faults.add(fmt::format("{}: {}", file.name, failed ? failed.message() : "not a file"));
    return false;
  }
  file.size = fs::file_size(path, failed);
  if (failed) faults.add(fmt::format("{}: {}", file.name, failed.message()));
  return !failed;
}

}  // namespace

void Faults::add(std::string fault) {
  if (faults_.size() == kMostFaults) {
    ++more_;
    return;
  }
  std::ranges::replace_if(
      fault, [](unsigned char c) { return std::iscntrl(c); }, ' ');
  faults_.push_back(std::move(fault));
}

std::vector<std::string> Faults::take() && {
  if (more_ > 0) faults_.push_back(fmt::format("and {} more", more_));
  return std::move(faults_);
}

Result<std::vector<RecordFile>> list_record_files(const std::string& dir, Faults& faults) {
  std::error_code failed;
  std::vector<RecordFile> files;
  for (fs::directory_iterator at(dir, failed), end; !failed && at != end; at.increment(failed)) {
    RecordFile file;
    if (at->path().extension() == ".jsonl" && look_at(at->path(), file, faults)) files.push_back(std::move(file));
  }
  if (failed) return errno_error(dir, failed.value());
  std::ranges::sort(files, {}, &RecordFile::name);
  return files;
}

Result<LineSource> LineSource::open(const RecordFile& file) {
  Fd fd(::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return errno_error(file.name);
  return LineSource(std::move(fd), file.size);
}

bool LineSource::fill() {
  buffer_.resize(std::min<std::uint64_t>(kChunk, left_));
  at_ = 0;
  auto got = buffer_.empty() ? 0 : ::read(fd_.get(), buffer_.data(), buffer_.size());
  failed_ = got < 0;
  buffer_.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  left_ -= buffer_.size();
  return !buffer_.empty();
}

LineSource::Found LineSource::next() {
  text_.clear();
  ++number_;
  bool too_long = false;
  for (;;) {
    if (at_ == buffer_.size() && !fill()) break;
    const auto* begin = buffer_.data() + at_;
    auto rest = buffer_.size() - at_;
    const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', rest));
    auto size = newline ? static_cast<std::size_t>(newline - begin) : rest;
    too_long = too_long || text_.size() + size > kLongestLine;
    if (!too_long) text_.append(begin, size);
    at_ += size + (newline ? 1 : 0);
    if (newline) return too_long ? Found::too_long : Found::line;
  }
  if (failed_) return Found::failed;
  if (too_long) return Found::too_long;
  return text_.empty() ? Found::end : Found::torn;
}

Result<StepSource> StepSource::open(const RecordFile& file, Faults* faults) {
  auto lines = LineSource::open(file);
  if (!lines) return lines.error();
  return StepSource(std::move(lines).value(), file.name, faults);
}

std::string StepSource::where() const { return fmt::format("{}:{}", name_, lines_.number()); }

void StepSource::fault(const std::string& what) {
  if (faults_) faults_->add(fmt::format("{}: {}", where(), what));
}

/// Whether the record continues this file.
bool StepSource::follows(const StepRecord& record) {
  if (begun_ && record.worker != worker_) {
    fault(fmt::format("worker {} in the file of worker {}", record.worker, worker_));
    return false;
  }
  Place place{record.lineage, record.step};
  if (begun_ && place <= last_) {
    fault(place == last_ ? fmt::format("step {} is recorded again", record.step)
                         : fmt::format("step {} of lineage {} after step {} of lineage {}", record.step, record.lineage,
                                       last_.second, last_.first));
    return false;
  }
  begun_ = true;
  worker_ = record.worker;
  last_ = place;
  return true;
}

std::optional<Entry> StepSource::step_of_line() {
  auto line = decode_line(lines_.text());
  if (!line) {
    fault(line.error().message);
    return std::nullopt;
  }
  if (line.value().kind != Line::Kind::step || !follows(line.value().record)) return std::nullopt;
  return Entry{std::move(line).value(), where()};
}

std::optional<Entry> StepSource::next() {
  for (;;) {
    switch (lines_.next()) {
      case LineSource::Found::line:
        if (auto entry = step_of_line()) return entry;
        break;
      case LineSource::Found::too_long:
        fault("too long for a record");
        break;
      case LineSource::Found::torn:
        ++torn_lines_;
        return std::nullopt;
      case LineSource::Found::failed:
        fault("cannot be read");
        return std::nullopt;
      case LineSource::Found::end:
        return std::nullopt;
    }
  }
}

}  // namespace pliant::session
