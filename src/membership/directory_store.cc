#include "membership/directory_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/fd.h"
#include "base/system.h"

namespace pliant::membership {
namespace {

namespace fs = std::filesystem;

/// A key as a part of a file's name.
std::string encoded(const std::string& key) {
  std::string text;
  for (unsigned char c : key)
    text += std::isalnum(c) || c == '-' || c == '_' ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02x}", c);
  return text;
}

Result<std::string> content_of(const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return errno_error(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return errno_error(path);
  if (static_cast<std::size_t>(status.st_size) > Store::kLongestText)
    return Error{Code::protocol, path + " is longer than anything that is stored"};
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t at = 0; at < text.size();) {
    auto got = ::read(file.get(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno_error(path) : Error{Code::io, path + " ends too early"};
    at += static_cast<std::size_t>(got);
  }
  return text;
}

Status write_all(const Fd& file, const std::string& text, const std::string& path) {
  for (std::size_t at = 0; at < text.size();) {
    auto put = ::write(file.get(), text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error(path);
    at += static_cast<std::size_t>(put);
  }
  return {};
}

}  // namespace

void DirectoryStore::later(std::function<void()> answer) {
  loop_.post([alive = std::weak_ptr(alive_), answer = std::move(answer)] {
    if (alive.lock()) answer();
  });
}

std::string DirectoryStore::file_of(const std::string& key, std::uint64_t revision) const {
  return fmt::format("{}/{}{}.{}", directory_, kPrefix, encoded(key), revision);
}

/// Revisions are numbered from 1, and none is taken away before the ones below it.
Result<Entry> DirectoryStore::newest(const std::string& key) const {
  Entry entry;
  for (;; ++entry.revision) {
    auto next = content_of(file_of(key, entry.revision + 1));
    if (!next.ok()) return next.error().code == Code::not_found ? Result<Entry>(entry) : next.error();
    entry.text = std::move(next).value();
  }
}

/// False if there is such a file. It has its whole content from the moment at which it is there.
Result<bool> DirectoryStore::create(const std::string& file, const std::string& text) const {
  auto draft = fmt::format("{}/{}{:016x}.new", directory_, kPrefix, random_u64());
  Fd opened(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!opened) return errno_error(draft);
  auto written = write_all(opened, text, draft);
  auto linked = written.ok() ? link(draft.c_str(), file.c_str()) : -1;
  auto why = errno;
  unlink(draft.c_str());
  if (!written.ok()) return written.error();
  if (linked == 0) return true;
  errno = why;
  if (why == EEXIST) return false;
  return errno_error(file);
}

Result<Attempt> DirectoryStore::try_to_replace(const std::string& key, std::uint64_t revision,
                                               const std::string& text) const {
  auto now = newest(key);
  if (!now.ok()) return now.error();
  if (now.value().revision == revision) {
    auto created = create(file_of(key, revision + 1), text);
    if (!created.ok()) return created.error();
    if (created.value()) return Attempt{true, {text, revision + 1}};
    now = newest(key);
    if (!now.ok()) return now.error();
  }
  return Attempt{false, std::move(now).value()};
}

void DirectoryStore::read(const std::string& key, std::function<void(Result<Entry>)> done) {
  later([done = std::move(done), entry = newest(key)] { done(entry); });
}

void DirectoryStore::replace(const std::string& key, std::uint64_t revision, std::string text,
                             std::function<void(Result<Attempt>)> done) {
  auto tried = text.size() > kLongestText ? Result<Attempt>(Error{Code::invalid, "a value that is too long to store"})
                                          : try_to_replace(key, revision, text);
  later([done = std::move(done), tried = std::move(tried)] { done(tried); });
}

void DirectoryStore::remove_all(const std::string& prefix, std::function<void(Status)> done) {
  std::error_code problem;
  auto begin = kPrefix + encoded(prefix);
  for (const auto& file : fs::directory_iterator(directory_, problem))
    if (file.path().filename().string().starts_with(begin)) fs::remove(file.path(), problem);
  Status removed;
  if (problem) removed = Error{Code::io, fmt::format("{}: {}", directory_, problem.message())};
  later([done = std::move(done), removed] { done(removed); });
}

}  // namespace pliant::membership
