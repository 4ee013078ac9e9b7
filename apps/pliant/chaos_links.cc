#include "apps/pliant/chaos_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/pliant/command.h"

namespace pliant::cli::chaos {
namespace {

bool is_name(const std::string& text) {
  return !text.empty() && text[0] != '-' && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '+';
  });
}

std::string filled(std::string command, const std::string& host) {
  constexpr std::string_view kPlace = "{host}";
  for (std::size_t at = 0; (at = command.find(kPlace, at)) != std::string::npos; at += host.size())
    command.replace(at, kPlace.size(), host);
  return command;
}

std::string in_netns(const Link& link, const std::string& tool) {
  return link.netns.empty() ? tool : fmt::format("{} -n {}", tool, link.netns);
}

std::string shaped(const Link& link, const std::string& rate) {
  return fmt::format("{} qdisc replace dev {} root tbf rate {} burst 256kb latency 100ms", in_netns(link, "tc"),
                     link.device, rate);
}

}  // namespace

Result<Link> parse_link(const std::string& text) {
  auto wrong = Error{Code::invalid, fmt::format("'{}' is not HOST=[NETNS/]DEVICE[@RATE]", printable(text))};
  auto equals = text.find('=');
  if (equals == std::string::npos) return wrong;
  Link link;
  link.host = text.substr(0, equals);
  auto rest = text.substr(equals + 1);
  if (auto at = rest.find('@'); at != std::string::npos) {
    link.rate = rest.substr(at + 1);
    rest.resize(at);
    if (!is_name(link.rate)) return wrong;
  }
  if (auto slash = rest.find('/'); slash != std::string::npos) {
    link.netns = rest.substr(0, slash);
    rest.erase(0, slash + 1);
    if (!is_name(link.netns)) return wrong;
  }
  link.device = rest;
  if (!is_name(link.host) || !is_name(link.device)) return wrong;
  return link;
}

bool LinkCommands::serves(Kind kind) const {
  return !links.empty() || (commands.contains(kind) && !heal.empty() && !hosts.empty());
}

std::vector<std::string> LinkCommands::targets() const {
  auto all = hosts;
  for (const auto& link : links)
    if (std::ranges::find(all, link.host) == all.end()) all.push_back(link.host);
  return all;
}

std::string LinkCommands::command(Kind kind, const std::string& host) const {
  if (auto own = commands.find(kind); own != commands.end()) return filled(own->second, host);
  auto link = std::ranges::find(links, host, &Link::host);
  if (link == links.end()) return "false";
  if (kind == Kind::cut) return fmt::format("{} link set {} down", in_netns(*link, "ip"), link->device);
  if (kind == Kind::slow) return shaped(*link, slow_rate);
  // A queue that takes nothing: what is for the host is dropped, what comes from it passes.
  return fmt::format("{} qdisc replace dev {} root pfifo limit 0", in_netns(*link, "tc"), link->device);
}

std::string LinkCommands::heal_command(Kind kind, const std::string& host) const {
  if (commands.contains(kind)) return filled(heal, host);
  auto link = std::ranges::find(links, host, &Link::host);
  if (link == links.end()) return "false";
  if (kind == Kind::cut) return fmt::format("{} link set {} up", in_netns(*link, "ip"), link->device);
  if (!link->rate.empty()) return shaped(*link, link->rate);
  return fmt::format("{} qdisc del dev {} root", in_netns(*link, "tc"), link->device);
}

}  // namespace pliant::cli::chaos
