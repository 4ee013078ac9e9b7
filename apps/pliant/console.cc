#include "apps/pliant/console.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pliant::cli {
namespace {

constexpr std::size_t kFull = 64 * 1024;
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

Console::Console(int out, int err) {
  outputs_[0] = {out, isatty(out) == 1};
  outputs_[1] = {err, isatty(err) == 1};
}

void Console::write(Stream stream, std::string_view lines) {
  if (lines.empty()) return;
  if (stream == Stream::err || output(stream).terminal) erase();
  auto& target = output(stream);
  if (target.gone) return;
  target.pending.append(lines);
  flush(target);
}

void Console::show(const std::string& status) {
  auto& target = output(Stream::err);
  if (status == shown_ || target.gone || !target.pending.empty()) return;
  target.pending = kEraseLine + status;
  shown_ = status;
  flush(target);
}

void Console::erase() {
  if (shown_.empty()) return;
  shown_.clear();
  auto& target = output(Stream::err);
  target.pending += kEraseLine;
  flush(target);
}

void Console::flush() {
  for (auto& target : outputs_) flush(target);
}

void Console::flush(Output& target) {
  std::size_t done = 0;
  while (done < target.pending.size() && !target.gone) {
    pollfd room{target.fd, POLLOUT, 0};
    if (poll(&room, 1, 0) <= 0) break;
    // A pipe that is ready takes this much without blocking.
    auto size =
        ::write(target.fd, target.pending.data() + done, std::min<std::size_t>(target.pending.size() - done, PIPE_BUF));
    if (size > 0)
      done += static_cast<std::size_t>(size);
    else if (errno != EINTR && errno != EAGAIN)
      target.gone = true;
    else if (errno == EAGAIN)
      break;
  }
  target.pending.erase(0, target.gone ? std::string::npos : done);
}

bool Console::full(Stream stream) const { return output(stream).pending.size() >= kFull; }

bool Console::idle() const {
  return std::all_of(outputs_.begin(), outputs_.end(), [](const Output& target) { return target.pending.empty(); });
}

bool Console::is_terminal(Stream stream) const { return output(stream).terminal; }

int Console::columns() const {
  winsize size{};
  if (ioctl(output(Stream::err).fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace pliant::cli
