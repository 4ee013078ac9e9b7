#include "session/notice.h"

#include <atomic>
#include <csignal>

namespace pliant::session {
namespace {

std::atomic<bool> noticed{false};  // a handler can reach nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

void notice(int /*signal*/) { noticed = true; }

}  // namespace

SignalNotice::SignalNotice() {
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;
  noticed = false;
  struct sigaction wanted {};
  wanted.sa_handler = &notice;
  wanted.sa_flags = SA_RESTART;
  ours_ = sigaction(SIGTERM, &wanted, nullptr) == 0;
}

SignalNotice::~SignalNotice() {
  if (!ours_) return;
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &usual, nullptr);
}

bool SignalNotice::given() const { return ours_ && noticed; }

}  // namespace pliant::session
