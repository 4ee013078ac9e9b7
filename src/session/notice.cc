#include "session/notice.h"

#include <csignal>

namespace pliant::session {
namespace {

volatile std::sig_atomic_t noticed = 0;  // a handler can reach nothing else

void notice(int /*signal*/) { noticed = 1; }

}  // namespace

Notice::Notice() {
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;
  noticed = 0;
  struct sigaction wanted {};
  wanted.sa_handler = &notice;
  wanted.sa_flags = SA_RESTART;
  ours_ = sigaction(SIGTERM, &wanted, nullptr) == 0;
}

Notice::~Notice() {
  if (!ours_) return;
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &usual, nullptr);
}

bool Notice::given() const { return ours_ && noticed != 0; }

}  // namespace pliant::session
