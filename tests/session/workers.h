// Workers of one job as threads of a test, each with a Core of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/system.h"
#include "net/socket.h"
#include "session/core.h"

namespace pliant::session {

/// Runs `body(core)` on as many threads. A body that throws ends the test process: wrap what should fail.
inline void run_cores(int workers, const std::function<void(std::unique_ptr<Core>)>& body, std::uint64_t seed = 42) {
  membership::View view{1, 1, seed, 1, {}};
  std::vector<Fd> listeners;
  for (int id = 0; id < workers; ++id) {
    auto address = "@pliant-test/" + std::to_string(random_u64());
    listeners.push_back(net::listen_at(address).or_throw());
    view.members.push_back({static_cast<std::uint64_t>(id), getpid(), address});
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] { body(Core::form("test", view, rank, std::move(listeners[rank])).or_throw()); });
  for (auto& thread : threads) thread.join();
}

inline void run_workers(int workers, const std::function<void(Core&)>& body, std::uint64_t seed = 42) {
  run_cores(
      workers,
      [&](std::unique_ptr<Core> core) {
        body(*core);
        core->leave();
      },
      seed);
}

}  // namespace pliant::session
