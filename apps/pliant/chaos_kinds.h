// The faults that `pliant chaos` knows, by the names that the command line, the report and the docs use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pliant::cli::chaos {

enum class Kind {
  kill,
  kill2,
  everybody,
  core_dump,
  term,
  resize,
  join_kill,
  switch_kill,
  sigstop,
  freeze,
  coordinator,
  coordinator_stop,
  agent,
  agent_stop,
  host,
  cut,
  one_way,
  slow,
  store,
};

/// What a kind cannot do without.
enum class Need {
  nothing,
  freezer,   ///< a cgroup v2 tree that this process may write to
  hosts,     ///< a job on several hosts, whose processes run on this machine
  commands,  ///< --link as root, or a command of the user for this kind and one that heals
  store,     ///< --store-pid
};

struct KindInfo {
  Kind kind;
  std::string_view name;
  bool by_default;  ///< needs nothing, and a job survives it
  Need need;
  std::string_view what;
};

/// In the order of the help.
std::span<const KindInfo> all_kinds();
const KindInfo& info_of(Kind kind);
inline std::string_view name_of(Kind kind) { return info_of(kind).name; }
std::vector<Kind> default_kinds();
/// "kill,term" or "default,everybody". Code::invalid with the names there are.
Result<std::vector<Kind>> parse_kinds(const std::string& text);

}  // namespace pliant::cli::chaos
