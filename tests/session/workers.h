// Workers of one job as threads of a test, each with a Runtime of its own.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/system.h"
#include "collective/connection_watch.h"
#include "net/socket.h"
#include "net/tcp.h"
#include "session/runtime.h"

namespace pliant::session {

/// Runs `body(runtime)` on as many threads. A body that throws ends the test process: wrap what should fail.
inline void run_runtimes(int workers, const std::function<void(std::unique_ptr<Runtime>)>& body,
                         std::uint64_t seed = 42) {
  membership::View view{1, 1, seed, 1, {}};
  std::vector<Fd> listeners;
  for (int id = 0; id < workers; ++id) {
    auto address = "@pliant-test/" + std::to_string(random_u64());
    listeners.push_back(net::listen_at(address).or_throw());
    view.members.push_back({static_cast<std::uint64_t>(id), getpid(), address});
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      body(
          Runtime::form("test", view, rank, std::move(listeners[rank]), std::nullopt, collective::ConnectionWatch::make)
              .or_throw());
    });
  for (auto& thread : threads) thread.join();
}

/// The same with worker i on host `hosts[i]`: only those of one host share memory and see each other's death.
inline void run_runtimes_on(const std::vector<int>& hosts, const std::function<void(std::unique_ptr<Runtime>)>& body,
                            std::uint64_t seed = 42) {
  membership::View view{1, 1, seed, 1, {}};
  auto secret = net::Secret::random();
  std::vector<Fd> listeners;
  std::vector<net::Listener> gates;
  for (std::size_t id = 0; id < hosts.size(); ++id) {
    auto address = "@pliant-test/" + std::to_string(random_u64());
    listeners.push_back(net::listen_at(address).or_throw());
    gates.push_back(net::tcp_listen("127.0.0.1", {}).or_throw());
    view.members.push_back({id, getpid(), address, "host" + std::to_string(hosts[id]), gates.back().endpoint.text()});
  }
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < hosts.size(); ++id)
    threads.emplace_back([&, id] {
      // A crowded machine is no reason to lose anybody: those who end close their connections.
      collective::HostsOptions road{secret, std::move(gates[id].socket), "", std::chrono::seconds(60)};
      body(Runtime::form("test", view, static_cast<int>(id), std::move(listeners[id]), std::move(road),
                         collective::ConnectionWatch::make)
               .or_throw());
    });
  for (auto& thread : threads) thread.join();
}

/// Reduces, with the step, how often each sample is used: once by whoever has it in its lease. `counts` has a float for
/// each sample.
inline step::StepReductionPtr submit_use(Runtime& runtime, const step::StableRegionPtr& counts, const Lease& lease) {
  auto* values = reinterpret_cast<float*>(counts->region->input());
  auto samples = counts->bytes / sizeof(float);
  std::fill(values, values + samples, 0.0F);
  for (auto sample : lease) values[sample] = 1;
  return runtime.submit({.name = counts->name, .count = samples, .memory = counts, .with_step = true});
}

inline void run_workers(int workers, const std::function<void(Runtime&)>& body, std::uint64_t seed = 42) {
  run_runtimes(
      workers,
      [&](std::unique_ptr<Runtime> runtime) {
        body(*runtime);
        runtime->leave();
      },
      seed);
}

}  // namespace pliant::session
