// A line to one address, near or far.
// Threads: the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "net/gate.h"
#include "net/line.h"
#include "net/loop.h"

namespace pliant::net {

/// What it takes to be let in on another host.
struct Credentials {
  Secret secret;
  Introduction who;
  std::string address{};  ///< to call from; empty: the kernel's choice
};

/// "tcp:10.0.0.1:4711" is on another host; "file:/path" is what that file says, now; anything else is a Unix socket
/// (socket.h).
bool is_remote(const std::string& address);
/// The address itself, or what the file says; empty if it says nothing.
std::string address_at(const std::string& address);

class Dialer {
 public:
  /// `credentials` are needed for remote addresses. `on_line` and `on_failure` may be called within call(), or later;
  /// neither is called after the destructor.
  Dialer(Loop& loop, std::string address, std::optional<Credentials> credentials, std::function<void(Line)> on_line,
         std::function<void(const Error&)> on_failure);
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// One attempt; does nothing while another one is under way.
  void call();
  /// Where that would go to.
  std::string address() const { return address_at(address_); }

 private:
  void ended(Result<Guest> guest);

  Loop& loop_;
  const std::string address_;
  const std::optional<Credentials> credentials_;
  const std::function<void(Line)> on_line_;
  const std::function<void(const Error&)> on_failure_;
  std::unique_ptr<Call> call_;
};

}  // namespace pliant::net
