// Commands that cut, narrow and heal the links of a job's hosts: the user's own, or ip and tc on devices that the user
// names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/chaos_kinds.h"
#include "base/result.h"

namespace pliant::cli::chaos {

/// The device through which all that is for a host passes: of a switch made of a network namespace, the host's port.
struct Link {
  std::string host;
  std::string netns;  ///< empty: of this process
  std::string device;
  std::string rate{};  ///< that tc shall give it again after `slow` and `one-way`, as "100mbit"; empty: no limit
};
/// "HOST=NETNS/DEVICE", "HOST=DEVICE", either with "@RATE" behind it.
Result<Link> parse_link(const std::string& text);

struct LinkCommands {
  std::vector<Link> links{};
  std::vector<std::string> hosts{};        ///< that the commands below may name
  std::map<Kind, std::string> commands{};  ///< with "{host}" in them
  std::string heal{};
  std::string slow_rate = "10mbit";

  /// Whether a kind has what it takes.
  bool serves(Kind kind) const;
  std::vector<std::string> targets() const;
  std::string command(Kind kind, const std::string& host) const;
  std::string heal_command(Kind kind, const std::string& host) const;
};

}  // namespace pliant::cli::chaos
