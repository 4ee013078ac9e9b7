#include "session/platform.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/system.h"
#include "net/dialer.h"
#include "net/socket.h"
#include "net/tcp.h"
#include "session/janitor.h"
#include "session/socket_transport.h"

#ifndef PLIANT_VERSION
#define PLIANT_VERSION "0"
#endif

namespace pliant::session {
namespace {

/// The environment that `pliant run` gives its workers.
struct Invitation {
  std::string job;
  std::string coordinator;
  std::uint64_t worker = 0;
};

std::optional<Invitation> invitation_in_environment() {
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
  if (auto silence = silence_wanted()) hosts.silence = *silence;
  auto trusted = network_is_trusted();
  if (!trusted.ok()) return trusted.error();
  hosts.trusted = trusted.value();
  return std::optional(std::move(hosts));
}

Result<RosterOptions> accept(const Invitation& invited) {
  RosterOptions options;
  options.job = invited.job;
  options.self = {invited.worker, getpid(), fmt::format("@pliant/{:016x}", random_u64())};
  auto listener = net::listen_at(options.self.address);
  if (!listener.ok()) return listener.error();
  auto hosts = place_on_host(options.self, net::address_at(invited.coordinator));
  if (!hosts.ok()) return hosts.error();
  auto decisions = env("PLIANT_DECISIONS");
  auto store = hosts.value() ? env("PLIANT_STORE").value_or("") : decisions ? "dir:" + *decisions : "";
  options.has_coordinator = true;
  options.has_store = !store.empty();
  options.cpu_level = static_cast<std::uint8_t>(cpu_level());
  options.build = PLIANT_VERSION;
  // A function must be copyable; it is called once.
  auto sockets =
      std::make_shared<SocketOptions>(SocketOptions{options.job, options.self, std::move(listener).value(),
                                                    invited.coordinator, std::move(hosts).value(), std::move(store)});
  options.open = [sockets] { return open_sockets(std::move(*sockets)); };
  return options;
}

class Machine final : public Platform {
 public:
  const Clock& clock() const override { return clock_; }
  double unix_time() const override { return unix_seconds(); }
  std::unique_ptr<Condition> condition() override { return std::make_unique<ThreadCondition>(); }
  std::optional<std::string> variable(const char* name) const override { return env(name); }
  Result<std::optional<RosterOptions>> invitation() override {
    auto invited = invitation_in_environment();
    if (!invited) return std::optional<RosterOptions>();
    auto accepted = accept(*invited);
    if (!accepted.ok()) return accepted.error();
    return std::optional(std::move(accepted).value());
  }
  Result<std::unique_ptr<collective::Group>> group_of_one(collective::Team team) override {
    return collective::Group::form(std::move(team), nullptr);
  }
  std::unique_ptr<Reclaimer> reclaimer() override { return std::make_unique<Janitor>(); }
  Result<std::unique_ptr<record::RecordSink>> records(const JournalOptions& options, std::uint64_t worker) override {
    return open_records(options, worker);
  }
  CheckpointStorage& checkpoints() override { return checkpoints_on_disk(); }
  std::unique_ptr<Notice> notice() override { return std::make_unique<SignalNotice>(); }
  void lower_priority() override { pliant::lower_priority(); }

 private:
  SteadyClock clock_;
};

thread_local Platform* chosen = nullptr;

}  // namespace

Platform& Platform::current() {
  static Machine machine;  // has no state
  return chosen ? *chosen : machine;
}

PlatformScope::PlatformScope(Platform& platform) : before_(std::exchange(chosen, &platform)) {}
PlatformScope::~PlatformScope() { chosen = before_; }

Result<bool> network_is_trusted() {
  auto network = env("PLIANT_NETWORK").value_or("protected");
  if (network == "trusted" || network == "protected") return network == "trusted";
  return Error{Code::invalid, fmt::format("PLIANT_NETWORK: '{}' is neither \"protected\" nor \"trusted\"", network)};
}

std::optional<std::chrono::milliseconds> silence_wanted() {
  auto silence = env("PLIANT_SILENCE_MS");
  if (!silence) return std::nullopt;
  return std::chrono::milliseconds(std::strtoul(silence->c_str(), nullptr, 10));
}

}  // namespace pliant::session
