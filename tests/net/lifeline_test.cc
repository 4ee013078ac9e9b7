#include "net/lifeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "net/socket.h"

namespace pliant::net {
namespace {

/// A process with a lifeline, which it sends to us; then it waits, or does as it is told.
class Process {
 public:
  explicit Process(const std::function<void(std::unique_ptr<Lifeline>& line)>& then = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    Fd here(ends[0]), there(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      auto line = Lifeline::create({[](std::uint64_t) {}}).or_throw();
      int fds[] = {line->descriptor()};
      if (!send(there, wire::Bye{}, fds).ok()) _exit(1);
      if (then) then(line);
      for (;;) pause();
    }
    there.reset();
    for (;;) {
      auto received = receive(here).or_throw();
      if (!received) continue;
      line_ = std::move(received->fds.at(0));
      break;
    }
  }
  ~Process() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    reap();
  }
  /// Waits for its end; then nothing is left of it.
  void reap() { waitpid(std::exchange(pid_, 0), nullptr, 0); }
  pid_t pid() const { return pid_; }
  const Fd& line() const { return line_; }

 private:
  pid_t pid_ = 0;
  Fd line_;
};

TEST(Lifeline, ADeathIsToldOnceAndProven) {
  Process process([](auto&) {
    // Something that takes its time to be taken apart.
    constexpr std::size_t kBytes = 64 << 20;
    auto* memory =
        static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t at = 0; at < kBytes; at += 4096) memory[at] = 1;
  });
  std::promise<std::uint64_t> died;
  auto line = Lifeline::create({[&](std::uint64_t id) { died.set_value(id); }}).or_throw();
  line->watch(7, process.pid(), process.line()).or_throw();
  EXPECT_FALSE(is_exiting(process.pid()));
  kill(process.pid(), SIGKILL);
  EXPECT_EQ(died.get_future().get(), 7U);
  EXPECT_TRUE(is_exiting(process.pid()));  // it is not reaped yet
}

TEST(Lifeline, SeveralWatchersAreAllTold) {
  Process process;
  std::vector<std::promise<void>> died(3);
  std::vector<std::unique_ptr<Lifeline>> lines;
  for (auto& promise : died) {
    lines.push_back(Lifeline::create({[&promise](std::uint64_t) { promise.set_value(); }}).or_throw());
    lines.back()->watch(1, process.pid(), process.line()).or_throw();
  }
  kill(process.pid(), SIGKILL);
  for (auto& promise : died) promise.get_future().get();
}

TEST(Lifeline, WhoIsDeadAlreadyIsToldToo) {
  Process process;
  kill(process.pid(), SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOWAIT), 0);
  std::promise<void> died;
  auto line = Lifeline::create({[&](std::uint64_t) { died.set_value(); }}).or_throw();
  line->watch(1, process.pid(), process.line()).or_throw();
  died.get_future().get();
}

TEST(Lifeline, ALifelineThatIsLetGoIsNoDeath) {
  Process process([](auto& line) { line.reset(); });
  Process other;
  std::promise<std::uint64_t> died;
  auto line = Lifeline::create({[&](std::uint64_t id) { died.set_value(id); }}).or_throw();
  line->watch(1, process.pid(), process.line()).or_throw();
  line->watch(2, other.pid(), other.line()).or_throw();
  kill(other.pid(), SIGKILL);
  EXPECT_EQ(died.get_future().get(), 2U);  // and not 1
}

TEST(Lifeline, AThreadThatEndsIsNoProof) {
  // The line is of a process that was killed, the process is one that lives.
  Process dead, alive, third;
  std::promise<std::uint64_t> died;
  auto line = Lifeline::create({[&](std::uint64_t id) { died.set_value(id); }}).or_throw();
  line->watch(1, alive.pid(), dead.line()).or_throw();
  kill(dead.pid(), SIGKILL);
  line->watch(3, third.pid(), third.line()).or_throw();
  kill(third.pid(), SIGKILL);
  EXPECT_EQ(died.get_future().get(), 3U);
  EXPECT_FALSE(is_exiting(alive.pid()));
}

TEST(Lifeline, WhatAProcessNotedLastIsReadAfterItsDeath) {
  Process process([](auto& line) {
    for (std::uint64_t number = 1; number <= 41; ++number) line->note(number);
    raise(SIGKILL);
  });
  std::promise<std::uint64_t> died;
  auto line = Lifeline::create({[&](std::uint64_t id) { died.set_value(id); }}).or_throw();
  EXPECT_EQ(line->noted_by(7), 0U);
  line->watch(7, process.pid(), process.line()).or_throw();
  EXPECT_EQ(died.get_future().get(), 7U);
  EXPECT_EQ(line->noted_by(7), 41U);
  process.reap();
  EXPECT_EQ(line->noted_by(7), 41U) << "also when nothing is left of it";
  line->unwatch(7);
  EXPECT_EQ(line->noted_by(7), 0U);
}

TEST(Lifeline, WhoEndsByItselfLeavesItsNoteToo) {
  Process process([](auto& line) {
    line->note(5);
    line.reset();
    _exit(0);
  });
  auto line = Lifeline::create({[](std::uint64_t) {}}).or_throw();
  line->watch(1, process.pid(), process.line()).or_throw();
  process.reap();
  EXPECT_EQ(line->noted_by(1), 5U);
}

TEST(Lifeline, AProcessThatIsStoppedIsToldUntilItRunsAgain) {
  Process process, busy;
  std::atomic<int> told{0};
  auto line = Lifeline::create({[](std::uint64_t) {},
                                [&](std::uint64_t id) {
                                  EXPECT_EQ(id, 1U);
                                  ++told;
                                }})
                  .or_throw();
  line->watch(1, process.pid(), process.line()).or_throw();
  line->watch(2, busy.pid(), busy.line()).or_throw();
  for (int i = 0; i < 2; ++i) {
    kill(process.pid(), SIGSTOP);
    while (told == i) usleep(1000);
    kill(process.pid(), SIGCONT);
    for (std::uint64_t beats = 0; beats < 5; ++beats) usleep(50'000);  // it counts again, which ends the standstill
  }
}

TEST(Lifeline, WhatIsNoLifelineIsRefused) {
  auto line = Lifeline::create({[](std::uint64_t) {}}).or_throw();
  auto wrong = create_segment("wrong", 2 * kPage, Backing::sparse).or_throw();
  EXPECT_FALSE(line->watch(1, getpid(), wrong.fd).ok());
  EXPECT_FALSE(line->watch(1, getpid(), Fd()).ok());
}

TEST(IsExiting, SaysNoOfTheLivingAndOfNobody) {
  EXPECT_FALSE(is_exiting(getpid()));
  EXPECT_FALSE(is_exiting(0x7ffffff0));
}

}  // namespace
}  // namespace pliant::net
