#include "apps/pliant/worker_processes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

namespace pliant::cli {
namespace {

/// A child that does nothing until it is killed.
struct Child {
  const pid_t pid = fork();
  Child() {
    if (pid == 0)
      for (;;) pause();
  }
  ~Child() { end(); }
  void end() {
    if (ended) return;
    ended = true;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  bool ended = false;
};

struct Watched {
  net::Loop loop;
  std::vector<std::uint64_t> gone;
  WorkerProcesses processes{loop, [this](std::uint64_t id) {
                              gone.push_back(id);
                              loop.stop();
                            }};
};

TEST(WorkerProcesses, AWorkersProcessesAreThoseThatItsOwnHasStarted) {
  Watched watched;
  Child child;
  EXPECT_FALSE(watched.processes.owner_of(child.pid));
  watched.processes.started(3, getpid());
  EXPECT_EQ(watched.processes.owner_of(child.pid), 3U);
  watched.processes.started(4, child.pid);
  EXPECT_EQ(watched.processes.owner_of(child.pid), 4U) << "the nearest";
  watched.processes.know(4, getpid());
  EXPECT_EQ(watched.processes.owner_of(child.pid), 4U) << "the agent's word counts";
  EXPECT_FALSE(watched.processes.owner_of(0)) << "that is on another host";
}

TEST(WorkerProcesses, TheOneThatJoinedIsWatched) {
  Watched watched;
  Child starter, worker;
  watched.processes.started(1, starter.pid);
  watched.processes.watch(1, worker.pid);
  watched.processes.started(1, starter.pid);
  starter.end();
  worker.end();
  watched.loop.run();
  EXPECT_EQ(watched.gone, (std::vector<std::uint64_t>{1}));
  EXPECT_FALSE(watched.processes.any_runs());
  EXPECT_TRUE(watched.processes.knows(1));
}

TEST(WorkerProcesses, TheNextOneThatStartsMakesItForgetThoseThatAreGone) {
  Watched watched;
  Child starter, worker, next;
  watched.processes.started(1, starter.pid);
  watched.processes.watch(1, worker.pid);
  worker.end();
  watched.loop.run();
  watched.processes.started(2, next.pid);
  EXPECT_TRUE(watched.processes.knows(1)) << "what started it may start another one, which is refused in its name";
  starter.end();
  watched.processes.started(3, next.pid);
  EXPECT_FALSE(watched.processes.knows(1));
  EXPECT_TRUE(watched.processes.knows(3));
}

TEST(WorkerProcesses, OneThatHasEndedBeforeIsGoneSoon) {
  Watched watched;
  Child child;
  child.end();
  watched.processes.know(2, child.pid);
  EXPECT_TRUE(watched.gone.empty());
  watched.loop.run();
  EXPECT_EQ(watched.gone, (std::vector<std::uint64_t>{2}));
}

}  // namespace
}  // namespace pliant::cli
