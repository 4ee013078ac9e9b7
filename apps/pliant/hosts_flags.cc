#include "apps/pliant/hosts_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include "net/tcp.h"
#include "net/trust.h"
#include "wire/messages.h"

namespace pliant::cli {
namespace {

Result<HostSlots> host_from(std::string name, const std::string& slots) {
  HostSlots host{std::move(name), 1};
  auto end = slots.data() + slots.size();
  bool number = slots.empty() || std::from_chars(slots.data(), end, host.slots).ptr == end;
  if (!number || host.slots < 1 || host.slots > wire::kMaxMembers)
    return Error{Code::invalid, fmt::format("'{}' is not a number of slots", slots)};
  auto odd = [](unsigned char c) { return !std::isgraph(c) || c == ',' || c == ':'; };
  if (host.name.empty() || host.name.size() > wire::kMaxName || std::ranges::any_of(host.name, odd))
    return Error{Code::invalid, fmt::format("'{}' is not a host's name", host.name)};
  return host;
}

Status add_host(std::vector<HostSlots>& hosts, Result<HostSlots> host) {
  if (!host.ok()) return host.error();
  auto same = [&](const HostSlots& known) { return known.name == host.value().name; };
  if (std::ranges::any_of(hosts, same))
    return Error{Code::invalid, fmt::format("host '{}' is named twice", host.value().name)};
  hosts.push_back(std::move(host).value());
  return {};
}

}  // namespace

void add_hosts_flags(CLI::App& run, HostsFlags& flags) {
  run.add_option("-H,--hosts", flags.hosts, "Hosts and how many workers each takes: a:2,b:2")
      ->option_text("HOST:SLOTS,…")
      ->envname("PLIANT_HOSTS");
  run.add_option("--hostfile", flags.hostfile, "The same, a line for each: 'name slots=2'")
      ->option_text("FILE")
      ->envname("PLIANT_HOSTFILE");
  run.add_option("--via", flags.via,
                 "How to start something on a host, e.g. 'ip netns exec {host}'. Environment, files and the program "
                 "must be there as they are here")
      ->option_text("COMMAND")
      ->envname("PLIANT_VIA");
  run.add_option("--address", flags.address, "Where this machine is reached by the hosts")
      ->option_text("ADDRESS")
      ->envname("PLIANT_ADDRESS");
  run.add_option("--interface", flags.interface_name,
                 "The network that workers are reached at on their hosts (default: the address of the host's name)")
      ->option_text("NAME")
      ->envname("PLIANT_INTERFACE");
}

Result<std::vector<HostSlots>> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    auto cut = entry.rfind(':');
    auto slots = cut == std::string::npos ? std::string() : entry.substr(cut + 1);
    if (cut != std::string::npos && slots.empty()) slots = " ";  // "a:" is a mistake, not a default
    PLIANT_TRY(add_host(hosts, host_from(entry.substr(0, cut), slots)));
  }
  if (hosts.empty()) return Error{Code::invalid, "no host is named"};
  return hosts;
}

Result<std::vector<HostSlots>> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Code::not_found, path + " cannot be read"};
  std::vector<HostSlots> hosts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots;
    if (!(words >> name)) continue;
    words >> slots;
    if (slots.starts_with("slots=")) slots = slots.substr(6);
    if (auto cut = name.rfind(':'); cut != std::string::npos && slots.empty()) {
      slots = name.substr(cut + 1);
      name.resize(cut);
    }
    PLIANT_TRY(add_host(hosts, host_from(name, slots)));
  }
  if (hosts.empty()) return Error{Code::invalid, path + " names no host"};
  return hosts;
}

std::vector<HostSlots> chosen_hosts(const HostsFlags& flags) {
  if (flags.hosts.empty() && flags.hostfile.empty()) {
    if (!flags.via.empty()) throw Failure(Code::invalid, "--via needs hosts: name them with -H or --hostfile");
    return {};
  }
  if (!flags.hosts.empty() && !flags.hostfile.empty())
    throw Failure(Code::invalid, "hosts are named by -H or by --hostfile, not by both");
  if (flags.via.empty()) throw Failure(Code::invalid, "--via says how to start something on a host");
  auto hosts = flags.hostfile.empty() ? parse_hosts(flags.hosts) : read_hostfile(flags.hostfile);
  if (!hosts.ok()) throw Failure(hosts.error().code, hosts.error().message);
  return std::move(hosts).value();
}

void plan_hosts(const HostsFlags& flags, std::vector<HostSlots> hosts, JobPlan& plan) {
  if (hosts.empty()) return;
  if (flags.address.empty()) throw Failure(Code::invalid, "--address says where this machine is reached by the hosts");
  auto address = net::resolve(flags.address).or_throw();
  plan.endpoint = net::tcp_listen(address, {}).or_throw().endpoint.text();
  plan.hosts = std::move(hosts);
  plan.via = flags.via;
  plan.interface_name = flags.interface_name;
}

Status write_secret(const std::string& dir) { return net::Secret::random().save(secret_file(dir)); }

}  // namespace pliant::cli
