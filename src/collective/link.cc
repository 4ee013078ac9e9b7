#include "collective/link.h"

#include <algorithm>
#include <utility>

#include "net/socket.h"

namespace pliant::collective {

bool Link::note_view(wire::LastView view) { return std::exchange(last_view, std::max(last_view, view)) < view; }

void Link::connect_later(Nanos now) {
  if (proven || !connects) return;
  retry = true;
  retry_at = lost ? now + kReconnect : Nanos(0);
}

Status Link::flush() {
  while (greeted && socket && !outbox.empty()) {
    const auto& parcel = *outbox.front();
    std::vector<int> fds;
    for (const auto& fd : parcel.fds) fds.push_back(fd.get());
    auto sent = net::try_send(socket, parcel.message, fds);
    if (!sent.ok()) return sent.error();
    if (!sent.value()) break;
    outbox.pop_front();
  }
  return {};
}

void Link::renew() {
  auto id = member.id;
  *this = Link{};
  member.id = id;
}

}  // namespace pliant::collective
