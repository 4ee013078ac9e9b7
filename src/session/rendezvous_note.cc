#include "session/rendezvous_note.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/fd.h"
#include "base/own_files.h"
#include "base/system.h"

namespace pliant::session {
namespace {

constexpr std::size_t kLongestNote = 256;

Status write_private(const std::string& path, const std::string& text) {
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file) return errno_error("cannot make " + path);
  // So short a text is written at once or not at all. A file server may find fault with it as late as now.
  bool written = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || fsync(file.get()) != 0) return errno_error("writing " + path);
  return {};
}

}  // namespace

Result<std::string> note_path(const std::string& dir, const std::string& job) {
  auto parent = std::filesystem::path(dir).parent_path();
  std::error_code ignored;  // mkdir will say what is wrong
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  if (mkdir(dir.c_str(), S_IRWXU) != 0 && errno != EEXIST) return errno_error("cannot make " + dir);
  if (auto own = OwnDirectory::open(dir, Links::own); !own.ok()) return own.error();
  return fmt::format("{}/launch-{}", dir, job);
}

Result<Note> read_note(const std::string& path) {
  // A file server's clients believe for half a minute that a name is not there, unless they open its directory anew.
  Fd fresh(open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto text = net::read_private(path, kLongestNote);
  if (!text.ok()) return text.error();
  auto end = text.value().find('\n');
  Error bad{Code::protocol, path + " is no note of rank 0's"};
  if (end == std::string::npos) return bad;
  auto endpoint = net::parse_endpoint(text.value().substr(0, end));
  auto secret = net::Secret::from_text(std::string_view(text.value()).substr(end + 1));
  if (!endpoint.ok() || !secret.ok()) return bad;
  return Note{endpoint.value(), secret.value()};
}

Result<PostedNote> PostedNote::post(const std::string& path, const Note& note) {
  auto draft = fmt::format("{}.{:016x}", path, random_u64());
  auto written = write_private(draft, fmt::format("{}\n{}\n", note.endpoint.text(), note.secret.text()));
  if (written.ok() && std::rename(draft.c_str(), path.c_str()) != 0) written = errno_error("cannot make " + path);
  if (!written.ok()) {
    unlink(draft.c_str());
    return written.error();
  }
  return PostedNote(path);
}

PostedNote::PostedNote(PostedNote&& other) noexcept : path_(std::exchange(other.path_, {})) {}

void PostedNote::remove() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

}  // namespace pliant::session
