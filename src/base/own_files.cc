#include "base/own_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>

namespace pliant {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool made_by_a_trusted_user(const struct stat& seen) { return seen.st_uid == geteuid() || seen.st_uid == 0; }

Status check_owner_and_mode(const struct stat& seen, const std::string& path) {
  if (seen.st_uid != geteuid())
    return Error{Code::refused, fmt::format("{} belongs to another user ({})", path, seen.st_uid)};
  if (seen.st_mode & kOthersWrite)
    return Error{Code::refused, fmt::format("other users can write to {} (mode {:04o}): 'chmod go-w {}' keeps them out",
                                            path, seen.st_mode & 07777, path)};
  return {};
}

/// Whether the last part of the path is a link, and may be followed.
Result<bool> follows_link(const std::string& path, Links links) {
  struct stat seen {};
  if (lstat(path.c_str(), &seen) != 0) return errno_error(path);
  if (!S_ISLNK(seen.st_mode)) return false;
  if (links == Links::own && made_by_a_trusted_user(seen)) return true;
  return Error{Code::refused, fmt::format("{} is a link{}: name the directory that it leads to", path,
                                          links == Links::own ? " that another user made" : "")};
}

/// 0, or what keeps it from being there.
int try_to_make(const std::string& path, mode_t mode) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return 0;
  auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && parent != path)
    if (int problem = try_to_make(parent, mode)) return problem;
  if (mkdir(path.c_str(), mode) != 0) {
    int problem = errno;
    bool there = problem == EEXIST && std::filesystem::is_directory(path, ignored);
    return there ? 0 : problem == EEXIST ? ENOTDIR : problem;
  }
  (void)chmod(path.c_str(), mode);  // what the umask took away; a file system without modes has nothing to say
  return 0;
}

}  // namespace

Result<OwnDirectory> OwnDirectory::open(const std::string& path, Links links) {
  auto link = follows_link(path, links);
  if (!link.ok()) return link.error();
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (link.value() ? 0 : O_NOFOLLOW)));
  if (!directory && errno == ENOTDIR) return Error{Code::invalid, path + " is not a directory"};
  if (!directory) return errno_error(path);
  struct stat seen {};
  if (fstat(directory.get(), &seen) != 0) return errno_error(path);
  PLIANT_TRY(check_owner_and_mode(seen, path));
  return OwnDirectory(std::move(directory), path);
}

Status make_directories(const std::string& path, mode_t mode) {
  if (int problem = try_to_make(path, mode)) return errno_error("cannot create " + path, problem);
  return {};
}

Result<Fd> OwnDirectory::open_file(const std::string& name, int flags, mode_t mode) const {
  PLIANT_ASSERT(name.find('/') == std::string::npos);
  auto path = path_ + "/" + name;
  Fd file;
  if (flags & O_CREAT) {
    file = Fd(openat(fd_.get(), name.c_str(), flags | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file && (errno != EEXIST || (flags & O_EXCL))) return errno_error(path);
    if (file) (void)fchmod(file.get(), mode);  // what the umask took away
  }
  if (!file) file = Fd(openat(fd_.get(), name.c_str(), (flags & ~O_CREAT) | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ELOOP) return Error{Code::refused, path + " is a link, which is not followed: remove it"};
  if (!file) return errno_error(path);
  struct stat seen {};
  if (fstat(file.get(), &seen) != 0) return errno_error(path);
  if (seen.st_nlink > 1)
    return Error{Code::refused, path + " has a second name, by which it may be another file: remove it"};
  PLIANT_TRY(check_owner_and_mode(seen, path));
  return file;
}

Result<std::string> OwnDirectory::read_file(const std::string& name, std::size_t most) const {
  auto file = open_file(name, O_RDONLY | O_NONBLOCK);  // a pipe in its place must not make us wait
  if (!file.ok()) return file.error();
  std::string text;
  std::array<char, 8192> part{};
  for (;;) {
    auto got = read(file.value().get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path_ + "/" + name);
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > most) return Error{Code::invalid, fmt::format("{}/{} has more than {} bytes", path_, name, most)};
  }
}

Result<mode_t> parse_file_mode(const std::string& text) {
  unsigned mode = 0;
  const auto* end = text.data() + text.size();
  bool number = !text.empty() && std::from_chars(text.data(), end, mode, 8).ptr == end;
  if (!number || (mode & ~0644U) || (mode & 0600U) != 0600U)
    return Error{Code::invalid, fmt::format("'{}' is none of 0600 (you alone), 0640 (your group may read) and 0644 "
                                            "(everybody may read)",
                                            text)};
  return static_cast<mode_t>(mode);
}

}  // namespace pliant
