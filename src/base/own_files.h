// Directories and files that other users of this machine can neither replace nor change. They are looked at through
// their descriptors, so that what was checked is what is used.
//
// Errors about trust are Code::refused, in one line that says whose or how open the thing is.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace pliant {

/// What becomes of a path whose last part is a symbolic link.
enum class Links {
  refused,
  own,  ///< followed if this user or root made it; for directories that the user has named
};

/// An open directory that belongs to this user and that neither its group nor others can write to.
class OwnDirectory {
 public:
  /// Parents of any kind are fine: whoever uses them to put another directory in its place later does not change what
  /// the descriptor is. Code::not_found if there is none.
  static Result<OwnDirectory> open(const std::string& path, Links links = Links::refused);

  const Fd& fd() const { return fd_; }
  const std::string& path() const { return path_; }

  /// Opens a file in it, not through a link; `mode` is that of a new one, whatever the umask. A file that belongs to
  /// another user, that others can write to, or that has a second name is refused. REQUIRES: no slash in `name`.
  Result<Fd> open_file(const std::string& name, int flags, mode_t mode = 0600) const;
  /// All of such a file; Code::invalid if it has more than `most` bytes.
  Result<std::string> read_file(const std::string& name, std::size_t most) const;

 private:
  OwnDirectory(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

/// Makes a directory with this mode, whatever the umask, and those above it that are missing. One that is there stays
/// as it is.
Status make_directories(const std::string& path, mode_t mode = 0700);

/// Who may read what a job leaves for people, as on the command line: "0600", "0640" or "0644". Code::invalid for a
/// mode with which the user could not write it, or others could.
Result<mode_t> parse_file_mode(const std::string& text);
/// Of folders with such files: whoever may read them may also look for them.
constexpr mode_t folder_mode(mode_t file) { return file | (file & 0444) >> 2; }

}  // namespace pliant
