#include "apps/pliant/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace pliant::cli {

Result<SignalWatch> SignalWatch::start(net::Loop& loop, std::function<void(int)> on_signal, bool terminal) {
  for (int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_IGN);
  if (!terminal) signal(SIGHUP, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // if it came to us ignored, the kernel would reap our children
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int number : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&wanted, number);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return errno_error("sigprocmask");
  SignalWatch watch;
  watch.signals_ = Fd(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!watch.signals_) return errno_error("signalfd");
  loop.watch(watch.signals_.get(), [fd = watch.signals_.get(), on_signal = std::move(on_signal)] {
    signalfd_siginfo info{};
    while (read(fd, &info, sizeof(info)) == sizeof(info)) on_signal(static_cast<int>(info.ssi_signo));
  });
  return watch;
}

}  // namespace pliant::cli
