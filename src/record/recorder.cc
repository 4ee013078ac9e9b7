#include "record/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "base/own_files.h"
#include "record/line.h"

namespace pliant::record {
namespace {

/// The size of the file up to and with its last newline: what a kill left behind that is no line.
off_t end_of_last_line(int fd, off_t size) {
  char chunk[4096];
  while (size > 0) {
    auto begin = std::max<off_t>(0, size - static_cast<off_t>(sizeof chunk));
    auto got = pread(fd, chunk, static_cast<std::size_t>(size - begin), begin);
    if (got != size - begin) return -1;
    auto newline = std::string_view(chunk, static_cast<std::size_t>(got)).rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<off_t>(newline) + 1;
    size = begin;
  }
  return 0;
}

/// A torn line would spoil the first one that is appended to it; it says nothing, so it goes.
Status cut_torn_line(int fd, const std::string& path) {
  struct stat seen {};
  if (fstat(fd, &seen) != 0) return errno_error(path);
  if (!S_ISREG(seen.st_mode)) return {};
  auto end = end_of_last_line(fd, seen.st_size);
  if (end < 0) return errno_error(path, errno ? errno : EIO);
  if (end < seen.st_size && ftruncate(fd, end) != 0) return errno_error(path);
  return {};
}

}  // namespace

class Recorder::Impl {
 public:
  Impl(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  void write(const Line& line) {
    if (getpid() != owner_) return;  // a forked child has the file too, but nothing to say in it
    line_.clear();
    append_line(line, line_);
    append();
  }

 private:
  void append() {
    auto written = ::write(fd_.get(), line_.data(), line_.size());
    if (written == static_cast<ssize_t>(line_.size())) return;
    warn_once(written < 0 ? errno : ENOSPC);
    if (written > 0) take_back(written);
  }
  /// Only part of the line was written: without that part the file still consists of lines.
  void take_back(ssize_t written) {
    auto size = lseek(fd_.get(), 0, SEEK_END);
    if (size >= written && ftruncate(fd_.get(), size - written) != 0) warn_once(errno);
  }
  void warn_once(int number) {
    if (!warned_) log::warn("records are incomplete from here on: {}", errno_error(path_, number).message);
    warned_ = true;
  }

  Fd fd_;
  const pid_t owner_ = getpid();
  const std::string path_;
  std::string line_;  // kept for its memory
  bool warned_ = false;
};

Recorder::Recorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Recorder::~Recorder() = default;

Result<std::unique_ptr<Recorder>> Recorder::open(const std::string& dir, const std::string& name, mode_t mode) {
  if (name.empty() || name.find('/') != std::string::npos)
    return Error{Code::invalid, "a record's name is a file's name: '" + name + "'"};
  PLIANT_TRY(make_directories(dir, folder_mode(mode)));
  auto folder = OwnDirectory::open(dir, Links::own);
  if (!folder.ok()) return folder.error();
  // Not to wait is for files that are none (a pipe without a reader): training never waits for its records.
  auto file = folder.value().open_file(name + ".jsonl", O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK, mode);
  if (!file.ok()) return file.error();
  auto path = dir + "/" + name + ".jsonl";
  PLIANT_TRY(cut_torn_line(file.value().get(), path));
  return std::unique_ptr<Recorder>(new Recorder(std::make_unique<Impl>(std::move(file).value(), path)));
}

void Recorder::write(const Line& line) { impl_->write(line); }

}  // namespace pliant::record
