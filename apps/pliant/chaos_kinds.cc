#include "apps/pliant/chaos_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "apps/pliant/command.h"

namespace pliant::cli::chaos {
namespace {

constexpr std::array<KindInfo, 19> kKinds = {{
    {Kind::kill, "kill", true, Need::nothing, "SIGKILL to a worker"},
    {Kind::kill2, "kill2", true, Need::nothing, "SIGKILL to two workers at once"},
    {Kind::everybody, "everybody", false, Need::nothing, "SIGKILL to all workers at once"},
    {Kind::core_dump, "core-dump", true, Need::nothing, "SIGABRT or SIGSEGV to a worker"},
    {Kind::term, "term", true, Need::nothing, "SIGTERM to a worker: it leaves"},
    {Kind::resize, "resize", true, Need::nothing, "another number of workers"},
    {Kind::join_kill, "join-kill", true, Need::nothing, "one worker more, and within 1.5 s SIGKILL to one"},
    {Kind::switch_kill, "switch-kill", true, Need::nothing,
     "SIGTERM to a worker, and within 100 ms SIGKILL to another"},
    {Kind::sigstop, "sigstop", true, Need::nothing, "SIGSTOP of a worker for a while"},
    {Kind::freeze, "freeze", false, Need::freezer, "a worker in a frozen cgroup for a while"},
    {Kind::coordinator, "coordinator", true, Need::nothing, "SIGKILL to the coordinator"},
    {Kind::coordinator_stop, "coordinator-stop", true, Need::nothing, "SIGSTOP of the coordinator for a while"},
    {Kind::agent, "agent", true, Need::nothing, "SIGKILL to the agent, then 'pliant run --attach'"},
    {Kind::agent_stop, "agent-stop", true, Need::nothing, "SIGSTOP of the agent for a while"},
    {Kind::host, "host", false, Need::hosts, "SIGKILL to all workers and the agent of a host"},
    {Kind::cut, "cut", false, Need::commands, "a host's link is cut for a while"},
    {Kind::one_way, "one-way", false, Need::commands, "nothing reaches a host for a while; what it sends arrives"},
    {Kind::slow, "slow", false, Need::commands, "a host's link is slow for a while"},
    {Kind::store, "store", false, Need::store, "SIGSTOP of the store for a while, or SIGKILL and a restart"},
}};

}  // namespace

std::span<const KindInfo> all_kinds() { return kKinds; }

const KindInfo& info_of(Kind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

std::vector<Kind> default_kinds() {
  std::vector<Kind> kinds;
  for (const auto& info : kKinds)
    if (info.by_default) kinds.push_back(info.kind);
  return kinds;
}

Result<std::vector<Kind>> parse_kinds(const std::string& text) {
  std::vector<Kind> kinds;
  auto add = [&](Kind kind) {
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  };
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "default") {
      for (auto kind : default_kinds()) add(kind);
      continue;
    }
    auto found = std::ranges::find(kKinds, word, &KindInfo::name);
    if (found == kKinds.end()) {
      std::string names = "default";
      for (const auto& info : kKinds) names += fmt::format(", {}", info.name);
      return Error{Code::invalid, fmt::format("'{}' is not a kind of fault; there are {}", printable(word), names)};
    }
    add(found->kind);
  }
  if (kinds.empty()) return Error{Code::invalid, "no kind of fault is named"};
  return kinds;
}

}  // namespace pliant::cli::chaos
