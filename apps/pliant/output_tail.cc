#include "apps/pliant/output_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace pliant::cli {
namespace {

constexpr std::size_t kChunk = 64 * 1024;
constexpr std::size_t kLongestLine = 1024 * 1024;  // a longer one is cut in two
constexpr std::size_t kLongestLastLine = 400;

}  // namespace

Result<OutputTail> OutputTail::open(const std::string& path, Stream stream, std::string prefix, bool from_now) {
  Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return errno_error("cannot read " + path);
  auto end = from_now ? lseek(file.get(), 0, SEEK_END) : 0;
  return OutputTail(std::move(file), stream, std::move(prefix), static_cast<std::uint64_t>(std::max<off_t>(end, 0)));
}

bool OutputTail::read_more(Console& console) {
  if (console.full(stream_)) return true;
  std::string chunk(kChunk, '\0');
  auto size = pread(file_.get(), chunk.data(), chunk.size(), static_cast<off_t>(offset_));
  if (size <= 0) return false;
  chunk.resize(static_cast<std::size_t>(size));
  offset_ += chunk.size();

  std::string lines;
  std::string_view rest = chunk;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    lines.append(prefix_).append(partial_).append(rest.substr(0, end + 1));
    partial_.clear();
    rest.remove_prefix(end + 1);
  }
  partial_ += rest;
  if (partial_.size() >= kLongestLine) {
    lines.append(prefix_).append(partial_).push_back('\n');
    partial_.clear();
  }
  console.write(stream_, lines);
  return true;
}

void OutputTail::poll(Console& console) { read_more(console); }

bool OutputTail::drain(Console& console) {
  if (read_more(console)) return false;
  if (!partial_.empty()) {
    // Without prefixes the bytes are passed on as they are; with them, the next line must not be glued to this one.
    console.write(stream_, prefix_ + partial_ + (prefix_.empty() ? "" : "\n"));
    partial_.clear();
  }
  return true;
}

std::vector<std::string> last_lines(const std::string& path, std::size_t lines) {
  constexpr std::size_t kEnough = 16 * 1024;
  Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return {};
  auto from = std::max<off_t>(0, info.st_size - static_cast<off_t>(kEnough));
  std::string text(kEnough, '\0');
  auto size = pread(file.get(), text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) text.pop_back();
  if (text.empty()) return {};

  std::vector<std::string> found;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) found.push_back(line.substr(0, kLongestLastLine));
  if (from > 0 && found.size() > 1) found.erase(found.begin());  // begins in the middle of a line
  if (found.size() > lines) found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(lines));
  return found;
}

}  // namespace pliant::cli
