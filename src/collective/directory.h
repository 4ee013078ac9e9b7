// Names to channels: this rank's own list, which it publishes, and what it has read of its peers' lists.
//
// Nobody negotiates. The first use of a name appends a description to the rank's own control segment; peers find it
// there when they need it, and compare. A later use with another shape appends a new description, which says from
// which use on it holds, so that ranks that disagree can tell. A list that is full ends the view: the next one has an
// empty list.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "collective/control.h"

namespace pliant::collective {

/// "f32[1024] sum, byte 4096 of the 8192 of region 'gradients'".
std::string describe(const Channel& channel);

/// What one rank has published. Reads only words that a peer can spoil but not make us follow: counts and lengths are
/// bounded here.
class PeerDirectory {
 public:
  PeerDirectory() = default;
  explicit PeerDirectory(const Control* control) : control_(control) {}
  const Control* control() const { return control_; }
  /// The description that holds for use number `use` of `name`, or nullptr if none is published yet.
  const Channel* find(const std::string& name, std::uint64_t use);

 private:
  const Control* control_ = nullptr;
  std::uint32_t scanned_ = 0;
  std::unordered_map<std::string, std::vector<const Channel*>> by_name_;  // in order of first_use
};

enum class Match {
  agreed,
  unknown,   ///< the peer has not come to this use yet
  mismatch,  ///< it has, with another shape
};
/// Compares this rank's channel at `use` with what a peer published.
Match compare(const Channel& own, std::uint64_t use, const Channel* theirs);

}  // namespace pliant::collective
