// For workers that are threads of one process: the end of a worker's connection is its end.
#pragma once

#include "collective/death_watch.h"

namespace pliant::collective {

class ConnectionWatch final : public DeathWatch {
 public:
  static std::unique_ptr<DeathWatch> make(net::Loop&, Events) { return std::make_unique<ConnectionWatch>(); }
  void watch(std::uint64_t, pid_t) override {}
  void watch_lifeline(std::uint64_t, const Fd&) override {}
  void forget(std::uint64_t) override {}
  bool has_ended(std::uint64_t) const override { return true; }
  std::optional<int> lifeline() const override { return std::nullopt; }
  void note_view(wire::LastView) override {}
  wire::LastView last_view(std::uint64_t) const override { return {}; }
};

}  // namespace pliant::collective
