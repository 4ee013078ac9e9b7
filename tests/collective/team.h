// Teams for tests: ranks as threads of one process, or as processes that can be killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/system.h"
#include "collective/group.h"
#include "net/socket.h"

namespace pliant::collective {

/// Addresses and listeners for `ranks` members of a fresh view.
struct TeamPlan {
  std::vector<wire::Member> members;
  std::vector<Fd> listeners;
  std::uint64_t view_hash = random_u64();

  explicit TeamPlan(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto address = "@pliant-test/" + std::to_string(random_u64());
      listeners.push_back(net::listen_at(address).or_throw());
      members.push_back({static_cast<std::uint64_t>(rank), getpid(), address});
    }
  }
  Team team(int rank) const { return {"test", view_hash, members, rank}; }
  std::unique_ptr<Group> form(int rank, GroupOptions options = {}) {
    return Group::form(team(rank), std::move(listeners[rank]), std::move(options)).or_throw();
  }
};

/// Runs `body(group)` on `ranks` threads, each a member of one group.
inline void run_threads(int ranks, const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
  TeamPlan plan(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto group = plan.form(rank, options);
      body(*group);
      group->leave();
    });
  for (auto& thread : threads) thread.join();
}

/// A child process that runs `body` and exits with 0, or with 1 if the body threw or a check failed.
inline pid_t spawn(const std::function<void()>& body) {
  pid_t child = fork();
  if (child != 0) return child;
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    fprintf(stderr, "child: %s\n", error.what());
    status = 1;
  }
  if (testing::Test::HasFailure()) status = 1;
  _exit(status);
}

/// What waitpid says, as an exit status or 128 + signal.
inline int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace pliant::collective
