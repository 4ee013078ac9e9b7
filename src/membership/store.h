// A store outside of the job, for what must be decided once although hosts may not see each other: who coordinates, and
// which view follows. A few small values, each replaced only by whoever knows what it was.
//
// Nothing on the step path talks to it: a store that is gone stops no training.
// Threads: everything on the loop's. No call blocks. Callbacks come later, never within the call, and not after the
// destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/loop.h"

namespace pliant::membership {

/// What is stored under a key.
struct Entry {
  std::string text;
  std::uint64_t revision = 0;  ///< grows with every change of this value; 0: there is none
};

/// How an attempt to replace a value ended.
struct Attempt {
  bool won = false;  ///< ours is stored
  Entry now;         ///< what is stored: ours, or that of whoever was faster
};

class Store {
 public:
  static constexpr std::size_t kLongestText = 256 * 1024;

  virtual ~Store() = default;
  /// Errors of all three: Code::peer_lost if no server answers in time, Code::io if one says no, Code::refused if one
  /// does not prove that it is the right one, or does not trust us, Code::protocol if what they say makes no sense.
  virtual void read(const std::string& key, std::function<void(Result<Entry>)> done) = 0;
  /// Stores `text` if the value still has `revision` (0: if there is none). Code::invalid if it is too long. After any
  /// other error it may have happened all the same, or happen later while the value still has that revision: read()
  /// tells how far it got, and another replace() of what was read settles it.
  virtual void replace(const std::string& key, std::uint64_t revision, std::string text,
                       std::function<void(Result<Attempt>)> done) = 0;
  /// Removes whatever is stored under keys that begin with `prefix`.
  virtual void remove_all(const std::string& prefix, std::function<void(Status)> done) = 0;
};

/// "etcd://10.0.0.1:2379,10.0.0.2:2379/prefix": any of these servers, through their HTTP gateway; keys get the prefix.
/// IPv6 as "[fd00::1]:2379"; the port may be left out (2379), and so may the prefix ("/pliant/"). Names are resolved
/// here, which may take long. Code::invalid if that is no store's address, Code::not_found if one of its names has
/// none. Does not connect yet.
/// "etcds://…": the same with TLS. Each server proves by its certificate that it has the name, or the address, that is
/// written here. Files that such an address names (etcd_address.h) are read here; Code::not_found, Code::invalid or
/// Code::refused if one is of no use.
/// "dir:/path": in that directory of this machine (directory_store.h).
Result<std::unique_ptr<Store>> open_store(net::Loop& loop, const std::string& url);

}  // namespace pliant::membership
