#include "apps/pliant/outbox.h"

namespace pliant::cli {

bool Outbox::flush(const Fd& socket) {
  while (!waiting_.empty()) {
    auto sent = net::try_send(socket, waiting_.front());
    if (!sent.ok()) return false;
    if (!sent.value()) return true;
    waiting_.pop_front();
  }
  return true;
}

}  // namespace pliant::cli
