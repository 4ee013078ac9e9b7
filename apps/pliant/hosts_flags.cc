#include "apps/pliant/hosts_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "apps/pliant/command.h"
#include "apps/pliant/ticket.h"
#include "base/system.h"
#include "net/tcp.h"
#include "net/trust.h"
#include "wire/messages.h"

namespace pliant::cli {
namespace {

constexpr std::size_t kLongestHost = 64;

Result<HostSlots> host_from(std::string name, const std::string& slots) {
  HostSlots host{std::move(name), 1};
  auto end = slots.data() + slots.size();
  bool number = slots.empty() || std::from_chars(slots.data(), end, host.slots).ptr == end;
  if (!number || host.slots < 1 || host.slots > wire::kMaxMembers)
    return Error{Code::invalid, fmt::format("'{}' is not a number of slots", slots)};
  auto odd = [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-' && c != '_'; };
  bool fits = !host.name.empty() && host.name.size() <= kLongestHost && !host.name.starts_with('-');
  if (!fits || std::ranges::any_of(host.name, odd))
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

/// One per line; `source` is what to name if there is none.
Result<std::vector<HostSlots>> hosts_in(std::istream& lines, const std::string& source) {
  std::vector<HostSlots> hosts;
  for (std::string line; std::getline(lines, line);) {
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
  if (hosts.empty()) return Error{Code::invalid, source + " names no host"};
  return hosts;
}

}  // namespace

void add_hosts_flags(CLI::App& run, HostsFlags& flags) {
  run.add_option("-H,--hosts", flags.hosts, "Hosts and how many workers each takes: a:2,b:2")
      ->option_text("HOST:SLOTS,…")
      ->envname("PLIANT_HOSTS");
  run.add_option("--hostfile", flags.hostfile, "The same, a line for each: 'name slots=2'")
      ->option_text("FILE")
      ->envname("PLIANT_HOSTFILE");
  run.add_option("--host-discovery-script", flags.discovery,
                 "A command that writes such lines; run every second, and the job follows what it says")
      ->option_text("COMMAND")
      ->envname("PLIANT_HOST_DISCOVERY_SCRIPT");
  run.add_option("--via", flags.via,
                 "How to start something on a host: 'ssh {host}', 'srun -w {host} -N1 -n1 --overlap'")
      ->option_text("COMMAND")
      ->envname("PLIANT_VIA");
  run.add_option("--pliant", flags.pliant, "Where this program is on the hosts (default: where it is here)")
      ->option_text("PATH")
      ->envname("PLIANT_PATH");
  run.add_option("--address", flags.address,
                 "Where this machine is reached by the hosts (default: the address that leads to the first)")
      ->option_text("ADDRESS")
      ->envname("PLIANT_ADDRESS");
  run.add_option("--interface", flags.interface_name,
                 "The network that workers are reached at on their hosts (default: the one that leads here)")
      ->option_text("NAME")
      ->envname("PLIANT_INTERFACE");
  add_store_flags(run, flags.store);
  run.add_option(
         "--network", flags.network,
         "protected: everything between hosts is encrypted. trusted: gradients and state are not, messages still "
         "are; for networks that nobody else can reach")
      ->option_text("protected|trusted")
      ->envname("PLIANT_NETWORK")
      ->check(CLI::IsMember({"protected", "trusted"}));
  run.add_option("--ports", flags.ports, "Listen only at these, here and on the hosts (default: any)")
      ->option_text("FIRST-LAST")
      ->envname("PLIANT_PORTS")
      ->check(parses(net::parse_ports));
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
  return hosts_in(file, path);
}

bool is_this_host(const std::string& name) { return name == "localhost" || name == host_name(); }

std::vector<std::string> words_of(const std::string& via, const std::string& host) {
  constexpr std::string_view kPlace = "{host}";
  std::vector<std::string> words;
  std::istringstream text(via);
  for (std::string word; text >> word;) {
    for (auto at = word.find(kPlace); at != std::string::npos; at = word.find(kPlace, at + host.size()))
      word.replace(at, kPlace.size(), host);
    words.push_back(word);
  }
  return words;
}

namespace {

/// The script's first answer, which is waited for.
Result<std::vector<HostSlots>> discover(const std::string& script) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(script.c_str(), "re"), [](FILE* file) { return pclose(file); });
  if (!pipe) return errno_error(script);
  std::string text;
  std::array<char, 4096> part{};
  while (auto size = fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), size);
  if (pclose(pipe.release()) != 0) return Error{Code::invalid, script + " has failed"};
  std::istringstream lines(text);
  return hosts_in(lines, script);
}

/// As the first host that is another sees this one; as this one is called, if none is known.
std::string address_for(const std::vector<HostSlots>& hosts, const HostsFlags& flags) {
  if (hosts.empty() && !flags.interface_name.empty()) return net::address_of_interface(flags.interface_name).or_throw();
  if (hosts.empty()) return net::resolve(host_name()).or_throw();
  for (const auto& host : hosts) {
    if (is_this_host(host.name)) continue;
    auto there = net::resolve(host.name);
    auto here = there.ok() ? net::address_towards(there.value()) : there;
    if (here.ok()) return here.value();
    throw Failure(Code::invalid, "--address says where this machine is reached by the hosts: " + here.error().message);
  }
  return "127.0.0.1";
}

}  // namespace

std::vector<HostSlots> chosen_hosts(const HostsFlags& flags) {
  int ways = !flags.hosts.empty() + !flags.hostfile.empty() + !flags.discovery.empty();
  if (ways == 0 && !flags.via.empty())
    throw Failure(Code::invalid, "--via needs hosts: name them with -H, --hostfile or --host-discovery-script");
  if (ways == 0) return {};
  if (ways > 1)
    throw Failure(Code::invalid, "hosts are named by -H, by --hostfile or by --host-discovery-script: choose one");
  auto hosts = !flags.hosts.empty()
                   ? parse_hosts(flags.hosts)
                   : (flags.hostfile.empty() ? discover(flags.discovery) : read_hostfile(flags.hostfile));
  if (!hosts.ok()) throw Failure(hosts.error().code, hosts.error().message);
  bool elsewhere = std::ranges::any_of(hosts.value(), [](const auto& host) { return !is_this_host(host.name); });
  if (flags.via.empty() && (elsewhere || !flags.discovery.empty()))
    throw Failure(Code::invalid, "--via says how to start something on a host, e.g. 'ssh {host}'");
  return std::move(hosts).value();
}

void plan_hosts(const HostsFlags& flags, std::vector<HostSlots> hosts, JobPlan& plan) {
  if (hosts.empty() && plan.supply.provider.empty()) return;
  auto address = flags.address.empty() ? address_for(hosts, flags) : net::resolve(flags.address).or_throw();
  auto ports = net::parse_ports(flags.ports.empty() ? "0" : flags.ports).or_throw();
  plan.endpoint = net::tcp_listen(address, ports).or_throw().endpoint.text();
  plan.hosts = std::move(hosts);
  plan.via = flags.via;
  plan.discovery = flags.discovery;
  plan.interface_name = flags.interface_name;
  plan.ports = flags.ports;
  plan.store = store_address(flags.store);
  plan.trusted_network = flags.network == "trusted";
  plan.pliant = flags.pliant.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : flags.pliant;
}

Status write_secret(const std::string& dir, const JobRecord& record) {
  auto secret = net::Secret::random();
  PLIANT_TRY(secret.save(secret_file(dir)));
  return write_ticket(dir, {record.name, record.plan.endpoint, secret});
}

}  // namespace pliant::cli
