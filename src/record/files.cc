#include "record/files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "record/line.h"

namespace pliant::record {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = 1 << 16;

/// False with a fault if it is no file that can be read like one.
bool look_at(const fs::path& path, RecordFile& file, Faults& faults) {
  std::error_code failed;
  file.path = path.string();
  file.name = path.filename().string();
  if (auto kind = fs::symlink_status(path, failed); !fs::is_regular_file(kind)) {
    auto why = fs::is_symlink(kind) ? "a link, which is not followed" : "not a file";
    faults.add(fmt::format("{}: {}", file.name, failed ? failed.message() : why));
    return false;
  }
  file.size = fs::file_size(path, failed);
  if (failed) faults.add(fmt::format("{}: {}", file.name, failed.message()));
  return !failed;
}

/// Decodes what a LineSource finds.
class FileFeed final : public LineFeed {
 public:
  explicit FileFeed(LineSource source) : source_(std::move(source)) {}

  Found next() override {
    if (broken_) return Found::end;
    switch (source_.next()) {
      case LineSource::Found::line:
        return decode();
      case LineSource::Found::too_long:
        problem_ = "too long for a record";
        return Found::unreadable;
      case LineSource::Found::failed:
        broken_ = true;
        problem_ = "cannot be read";
        return Found::unreadable;
      case LineSource::Found::torn:
        return Found::torn;
      case LineSource::Found::end:
        break;
    }
    return Found::end;
  }
  const Line& line() const override { return line_; }
  const std::string& problem() const override { return problem_; }
  std::uint64_t number() const override { return source_.number(); }

 private:
  Found decode() {
    auto line = decode_line(source_.text());
    if (!line.ok()) {
      problem_ = line.error().message;
      return Found::unreadable;
    }
    line_ = std::move(line).value();
    return Found::line;
  }

  LineSource source_;
  Line line_;
  std::string problem_;
  bool broken_ = false;
};

}  // namespace

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
  Fd fd(::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
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

Result<FileLogs> FileLogs::open(const std::string& dir, Faults& faults) {
  auto files = list_record_files(dir, faults);
  if (!files.ok()) return files.error();
  return FileLogs(std::move(files).value());
}

Result<std::unique_ptr<LineFeed>> FileLogs::read(std::size_t index) const {
  auto source = LineSource::open(files_[index]);
  if (!source.ok()) return source.error();
  return std::unique_ptr<LineFeed>(std::make_unique<FileFeed>(std::move(source).value()));
}

}  // namespace pliant::record
