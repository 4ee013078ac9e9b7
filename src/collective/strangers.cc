#include "collective/strangers.h"

#include <utility>

#include "base/log.h"

namespace pliant::collective {

void Strangers::serve() {
  for (auto& [number, stranger] : strangers_)
    if (std::exchange(stranger.full, false))
      loop_.watch(stranger.peer.socket.get(), [this, number = number] { read(number); });
  if (accepting_ || !listener_) return;
  accepting_ = true;
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

void Strangers::accept_all() {
  for (;;) {
    auto peer = net::accept_from(listener_);
    if (!peer.ok() && peer.error().code == Code::io) {
      log::debug("cannot take a connection for a moment: {}", peer.error().message);
      loop_.unwatch(listener_.get());
      accepting_ = false;
      return;
    }
    if (!peer.ok()) return refuse(peer.error().message);
    if (!peer.value()) return;
    add(std::move(*peer.value()));
  }
}

void Strangers::add(net::Peer peer) {
  if (strangers_.size() >= kMost) {
    loop_.unwatch(strangers_.begin()->second.peer.socket.get());
    strangers_.erase(strangers_.begin());
    refuse("a connection that says nothing");
  }
  auto number = next_++;
  int fd = peer.socket.get();
  strangers_.emplace(number, Stranger{std::move(peer)});
  loop_.watch(fd, [this, number] { read(number); });
}

void Strangers::read(std::uint64_t number) {
  auto& stranger = strangers_.at(number);
  auto received = net::receive(stranger.peer.socket);
  if (received.ok() && !received.value()) return;
  loop_.unwatch(stranger.peer.socket.get());
  if (!received.ok() && received.error().code == Code::io) {
    stranger.full = true;
    return;
  }
  auto peer = std::move(stranger.peer);
  strangers_.erase(number);
  if (!received.ok()) return refuse(received.error().message);
  auto* hello = std::get_if<wire::PeerHello>(&received.value()->message);
  if (!hello) return refuse("expected a greeting");
  auto taken = on_greeting_(peer, *hello, std::move(received.value()->fds));
  if (!taken.ok()) refuse(taken.error().message);
}

void Strangers::refuse(const std::string& why) {
  log::debug("refused a connection: {}", why);
  refused_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace pliant::collective
