#include "session/checkpoint_draft.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/system.h"
#include "session/checkpoint_record.h"

namespace pliant::session {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDraftPrefix = ".tmp-";
constexpr std::size_t kDraftDigits = 16;
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // the kernel takes at most 2 GiB at once
constexpr int kTries = 10;

std::string new_draft_path(const std::string& dir) {
  return fmt::format("{}/{}{:016x}", dir, kDraftPrefix, random_u64());
}

bool is_draft(std::string_view name) {
  if (!name.starts_with(kDraftPrefix) || name.size() != kDraftPrefix.size() + kDraftDigits) return false;
  return name.find_first_not_of("0123456789abcdef", kDraftPrefix.size()) == std::string_view::npos;
}

std::optional<std::uint64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  std::uint64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  auto [end, problem] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (problem != std::errc{} || folder_of_step("", step) != "/" + name) return std::nullopt;
  return step;
}

/// The names of what is in a folder; none if it cannot be read.
std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code problem;
  for (fs::directory_iterator entry(dir, problem), end; !problem && entry != end; entry.increment(problem))
    names.push_back(entry->path().filename().string());
  return names;
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Status sync(const Fd& fd, const std::string& path) {
  if (fsync(fd.get()) == 0 || errno == EINVAL) return {};  // EINVAL: this file system has nothing to sync here
  return errno_error("cannot write " + path);
}

Status sync_folder(const std::string& path) {
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return errno_error(path);
  return sync(folder, path);
}

Status make_dir(const std::string& dir, mode_t mode) {
  std::error_code problem;
  if (fs::is_directory(dir, problem)) return {};
  PLIANT_TRY(make_directories(dir, mode));
  auto parent = fs::absolute(dir, problem).lexically_normal().parent_path();
  return sync_folder(parent.empty() ? "/" : parent.string());
}

Fd open_draft(const std::string& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_still_at(const Fd& folder, const std::string& path) {
  struct stat held {};
  struct stat there {};
  return fstat(folder.get(), &held) == 0 && lstat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

/// Locks a draft that was just made. False if somebody who cleans up was quicker.
bool claim(const Fd& folder, const std::string& path) {
  if (!folder) return false;
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_still_at(folder, path);  // without locks here, nobody cleans up either
}

/// Puts `draft` in the place of a folder that exists; what was there ends under the draft's name.
int swap_names(const std::string& draft, const std::string& target) {
  if (renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // For an instant there is neither; a kill then costs this step's checkpoint, not those before it.
  auto old = new_draft_path(fs::path(target).parent_path().string());
  if (rename(target.c_str(), old.c_str()) != 0) return -1;
  if (rename(draft.c_str(), target.c_str()) == 0) {
    (void)rename(old.c_str(), draft.c_str());  // should it fail, the old one is an orphan
    return 0;
  }
  auto why = errno;
  (void)rename(old.c_str(), target.c_str());
  errno = why;
  return -1;
}

/// Renames, in place of what is there. What was there ends under the draft's name, or nothing does.
Status take_name(const std::string& draft, const std::string& target) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (rename(draft.c_str(), target.c_str()) == 0) return {};
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) break;
    if (swap_names(draft, target) == 0) return {};
    if (errno != ENOENT) break;  // ENOENT: somebody removed it between the two
  }
  return errno_error("cannot write " + target);
}

}  // namespace

Result<Draft> Draft::create(const std::string& dir, mode_t mode) {
  PLIANT_TRY(make_dir(dir, folder_mode(mode)));
  if (auto own = OwnDirectory::open(dir, Links::own); !own.ok()) return own.error();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    auto path = new_draft_path(dir);
    PLIANT_TRY(make_directories(path, folder_mode(mode)));
    auto folder = OwnDirectory::open(path);
    if (folder.ok() && claim(folder.value().fd(), path)) return Draft(dir, path, std::move(folder).value(), mode);
    rmdir(path.c_str());
  }
  return Error{Code::io, fmt::format("{}: somebody removes what is written", dir)};
}

Draft::Draft(Draft&& other) noexcept
    : dir_(std::move(other.dir_)),
      path_(std::exchange(other.path_, {})),
      folder_(std::move(other.folder_)),
      mode_(other.mode_) {}

Draft::~Draft() {
  if (!path_.empty()) remove_all(path_);
}

Status Draft::write(const std::string& name, std::span<const std::byte> bytes) const {
  auto path = path_ + name;
  auto file = folder_.open_file(name.substr(1), O_WRONLY | O_CREAT | O_EXCL, mode_);
  if (!file.ok()) return Error{file.error().code, "cannot write " + file.error().message};
  while (!bytes.empty()) {
    auto written = ::write(file.value().get(), bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (written < 0 && errno != EINTR) return errno_error("cannot write " + path);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return sync(file.value(), path);
}

Result<std::string> Draft::publish(std::uint64_t step) {
  auto target = folder_of_step(dir_, step);
  PLIANT_TRY(sync(folder_.fd(), path_));
  PLIANT_TRY(take_name(path_, target));
  auto replaced = std::exchange(path_, {});
  PLIANT_TRY(sync_folder(dir_));
  remove_all(replaced);  // only now: the disk may have known the old one by the target's name until here
  return target;
}

Result<Draft> write_draft(const std::string& dir, const Position& position, const StateImage& image, mode_t mode) {
  auto draft = Draft::create(dir, mode);
  if (!draft) return draft;
  PLIANT_TRY(draft.value().write(kStateFile, image.bytes()));
  auto record = encode_record({position, image.seal()});
  PLIANT_TRY(draft.value().write(kRecordFile, std::as_bytes(std::span(record))));
  return draft;
}

std::string folder_of_step(const std::string& dir, std::uint64_t step) {
  return fmt::format("{}/step-{:012}", dir, step);
}

std::vector<std::uint64_t> steps_in(const std::string& dir) {
  std::vector<std::uint64_t> steps;
  for (const auto& name : names_in(dir))
    if (auto step = step_of(name)) steps.push_back(*step);
  std::ranges::sort(steps, std::greater{});
  return steps;
}

void remove_step(const std::string& dir, std::uint64_t step) {
  auto old = new_draft_path(dir);
  if (rename(folder_of_step(dir, step).c_str(), old.c_str()) == 0) remove_all(old);
}

void remove_orphans(const std::string& dir) {
  for (const auto& name : names_in(dir)) {
    if (!is_draft(name)) continue;
    auto path = dir + "/" + name;
    auto folder = open_draft(path);
    if (!folder || flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (is_still_at(folder, path)) remove_all(path);
  }
}

}  // namespace pliant::session
