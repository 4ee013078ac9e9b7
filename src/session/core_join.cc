// How a worker comes into its job: by the invitation in its environment, or into a view that is known.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "net/socket.h"
#include "net/tcp.h"
#include "session/core.h"

#ifndef PLIANT_VERSION
#define PLIANT_VERSION "0"
#endif

namespace pliant::session {
namespace {

using membership::View;

/// The environment that `pliant run` gives its workers.
struct Invitation {
  std::string job;
  std::string coordinator;
  std::uint64_t worker = 0;
};

std::optional<Invitation> invitation() {
  auto coordinator = env("PLIANT_COORDINATOR");
  auto job = env("PLIANT_JOB");
  auto worker = env("PLIANT_WORKER");
  if (!coordinator || !job || !worker) return std::nullopt;
  return Invitation{*job, *coordinator, std::strtoull(worker->c_str(), nullptr, 10)};
}

/// That of the interface that the user chose, or of the one that leads to the coordinator.
Result<std::string> own_address(const std::string& coordinator) {
  if (auto chosen = env("PLIANT_INTERFACE")) return net::address_of_interface(*chosen);
  auto there = net::parse_endpoint(coordinator.substr(std::min(coordinator.size(), coordinator.find(':') + 1)));
  return there.ok() ? net::address_towards(there.value().address) : there.error();
}

/// On one of several hosts: makes a place where workers of the others reach this one, and notes it in `self`.
Result<std::optional<collective::HostsOptions>> place_on_host(wire::Member& self, const std::string& coordinator) {
  auto host = env("PLIANT_HOST");
  if (!host) return std::optional<collective::HostsOptions>();
  auto secret = net::Secret::from_file(env("PLIANT_SECRET_FILE").value_or(""));
  if (!secret.ok()) return secret.error();
  auto address = own_address(coordinator);
  if (!address.ok()) return address.error();
  auto ports = net::parse_ports(env("PLIANT_PORTS").value_or("0"));
  if (!ports.ok()) return ports.error();
  auto listener = net::tcp_listen(address.value(), ports.value());
  if (!listener.ok()) return listener.error();
  self.host = *host;
  self.endpoint = listener.value().endpoint.text();
  collective::HostsOptions hosts{secret.value(), std::move(listener.value().socket), address.value()};
  if (auto silence = env("PLIANT_SILENCE_MS"))
    hosts.silence = std::chrono::milliseconds(std::strtoul(silence->c_str(), nullptr, 10));
  return std::optional(std::move(hosts));
}

}  // namespace

Core::Core(std::uint64_t self, std::uint64_t seed, std::unique_ptr<Roster> roster)
    : self_(self), seed_(seed), roster_(std::move(roster)) {}

Core::~Core() {
  if (roster_) roster_->guard(nullptr);
}

Result<std::unique_ptr<Core>> Core::form(const std::string& job, const View& view, int rank, Fd listener,
                                         std::optional<collective::HostsOptions> hosts) {
  auto self = view.members[static_cast<std::size_t>(rank)];
  std::unique_ptr<Roster> roster;
  if (view.size() > 1)
    roster = std::make_unique<Roster>(RosterOptions{job, self, std::move(listener), view, "", 0, "", std::move(hosts)});
  std::unique_ptr<Core> core(new Core(self.id, view.seed, std::move(roster)));
  PLIANT_TRY(core->try_enter(view, core->group_));
  core->view_ = view;
  core->deal_ = Deal::even(view);
  core->turn_ = {core->deal_, rank, view.size()};
  return core;
}

Result<std::unique_ptr<Core>> Core::join(const JoinOptions& options) {
  auto invited = invitation();
  if (!invited) return form("", {1, 1, options.seed.value_or(42), 1, {{0, getpid(), ""}}}, 0, Fd());

  wire::Member self{invited->worker, getpid(), fmt::format("@pliant/{:016x}", random_u64())};
  auto listener = net::listen_at(self.address);
  if (!listener.ok()) return listener.error();
  auto hosts = place_on_host(self, net::address_at(invited->coordinator));
  if (!hosts.ok()) return hosts.error();
  auto roster = std::make_unique<Roster>(RosterOptions{invited->job,
                                                       self,
                                                       std::move(listener).value(),
                                                       {},
                                                       invited->coordinator,
                                                       static_cast<std::uint8_t>(cpu_level()),
                                                       PLIANT_VERSION,
                                                       std::move(hosts).value(),
                                                       env("PLIANT_STORE").value_or("")});
  auto first = roster->await_first();
  if (!first.ok()) return first.error();
  auto view = std::move(first).value();
  std::unique_ptr<Core> core(new Core(invited->worker, view.seed, std::move(roster)));
  int rank = view.rank_of(invited->worker);
  log::set_prefix(std::to_string(invited->worker));
  if (rank < 0) {
    core->go_solo();
    return core;
  }
  core->deal_ = Deal::even(view);
  core->turn_ = {core->deal_, rank, view.size()};
  core->enter_next();
  return core;
}

}  // namespace pliant::session
