#include "apps/pliant/outbox.h"

namespace pliant::cli {

bool Outbox::flush(net::Line& line) {
  while (!waiting_.empty()) {
    auto sent = line.try_send(waiting_.front());
    if (!sent.ok()) return false;
    if (!sent.value()) return true;
    waiting_.pop_front();
  }
  return line.flush().ok();
}

}  // namespace pliant::cli
