// How a worker comes into its job: by the invitation in its environment, together with those that were launched with
// it, or into a view that is known.
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
#include "session/launch.h"
#include "session/rendezvous.h"

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

void set_silence(collective::HostsOptions& hosts) {
  if (auto silence = env("PLIANT_SILENCE_MS"))
    hosts.silence = std::chrono::milliseconds(std::strtoul(silence->c_str(), nullptr, 10));
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
  set_silence(hosts);
  return std::optional(std::move(hosts));
}

/// How those meet that no `pliant run` has started.
Result<MeetOptions> meet_options(const JoinOptions& wanted) {
  MeetOptions options;
  auto home = env("HOME");
  if (!home && !env("PLIANT_DIR"))
    return Error{Code::invalid, "neither PLIANT_DIR nor HOME is set, so the job's processes have no place to meet"};
  options.dir = env("PLIANT_DIR").value_or(home.value_or("") + "/.pliant");
  options.interface_name = env("PLIANT_INTERFACE").value_or("");
  if (auto patience = env("PLIANT_PATIENCE")) {
    constexpr double kMost = 86'400;
    char* end = nullptr;
    double value = std::strtod(patience->c_str(), &end);
    if (*end != '\0' || !(value > 0 && value <= kMost))
      return Error{Code::invalid, fmt::format("PLIANT_PATIENCE: '{}' is not a number of seconds", *patience)};
    options.patience = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(value));
  }
  options.seed = wanted.seed.value_or(options.seed);
  options.cpu_level = static_cast<std::uint8_t>(cpu_level());
  options.build = PLIANT_VERSION;
  return options;
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
  core->view_ = view;
  core->deal_ = Deal::even(view);
  core->turn_ = {core->deal_, rank, view.size()};
  auto entered = core->try_enter(view, core->group_);
  if (entered.ok()) return core;
  if (entered.error().code != Code::peer_lost) return entered.error();
  core->go_on_after(entered.error());  // somebody has died since the view was made
  return core;
}

Result<std::unique_ptr<Core>> Core::join(const JoinOptions& options) {
  if (invitation()) return join_invited();
  auto launch = launch_from(&env);
  if (!launch.ok()) return launch.error();
  if (launch.value()) return join_launched(*launch.value(), options);
  return form("", {1, 1, options.seed.value_or(42), 1, {{0, getpid(), ""}}}, 0, Fd());
}

Result<std::unique_ptr<Core>> Core::join_launched(const Launch& launch, const JoinOptions& options) {
  log::set_prefix(std::to_string(launch.rank));
  auto wanted = meet_options(options);
  if (!wanted.ok()) return wanted.error();
  auto met = meet(launch, wanted.value());
  if (!met.ok()) return met.error();
  auto& [view, listener, hosts] = met.value();
  if (hosts) set_silence(*hosts);
  if (launch.rank == 0) log::info("{} processes of {} are job {}", launch.size, launch.launcher, launch.job);
  auto core = form(launch.job, view, launch.rank, std::move(listener), std::move(hosts));
  if (core.ok()) core.value()->own_process_ = true;
  return core;
}

Result<std::unique_ptr<Core>> Core::join_invited() {
  auto invited = invitation();
  wire::Member self{invited->worker, getpid(), fmt::format("@pliant/{:016x}", random_u64())};
  auto listener = net::listen_at(self.address);
  if (!listener.ok()) return listener.error();
  auto hosts = place_on_host(self, net::address_at(invited->coordinator));
  if (!hosts.ok()) return hosts.error();
  auto store = hosts.value() ? env("PLIANT_STORE").value_or("") : "";  // on one host there is nothing to decide
  auto roster = std::make_unique<Roster>(RosterOptions{invited->job,
                                                       self,
                                                       std::move(listener).value(),
                                                       {},
                                                       invited->coordinator,
                                                       static_cast<std::uint8_t>(cpu_level()),
                                                       PLIANT_VERSION,
                                                       std::move(hosts).value(),
                                                       std::move(store)});
  auto first = roster->await_first();
  if (!first.ok()) return first.error();
  auto view = std::move(first).value();
  std::unique_ptr<Core> core(new Core(invited->worker, view.seed, std::move(roster)));
  core->own_process_ = true;
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
