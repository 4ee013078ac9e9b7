// TCP sockets between hosts, IPv4 and IPv6. Nothing here blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace pliant::net {

struct Ports {
  std::uint16_t first = 0, last = 0;  ///< 0: the kernel's choice
};
/// "4000-4100" or "4000".
Result<Ports> parse_ports(const std::string& text);

/// "10.0.0.1:4711", "[fd00::1]:4711" -> address and port. No names: who has one resolves it first.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};
Result<Endpoint> parse_endpoint(const std::string& text);
/// Such an address means this host to everybody.
bool is_loopback(const std::string& address);
/// A host's name, or an address: the first address that it resolves to. May take long.
Result<std::string> resolve(const std::string& host);
/// This machine's address as `address` sees it, by the kernel's routes. Nothing is sent.
Result<std::string> address_towards(const std::string& address);
/// The address of a network interface ("eth0"; IPv4 before IPv6, no link-local ones).
Result<std::string> address_of_interface(const std::string& interface);

struct Listener {
  Fd socket;
  Endpoint endpoint;  ///< with the port that it got
};
/// The first free port of the range at `address`.
Result<Listener> tcp_listen(const std::string& address, Ports ports);
/// A waiting connection, or nothing.
Result<std::optional<Fd>> tcp_accept(const Fd& listener);
/// Begins to connect, from `from` if that is not empty. The socket becomes writable when that is decided.
Result<Fd> tcp_connect(const Endpoint& to, const std::string& from = "");
/// After that: Code::peer_lost if it failed.
Status tcp_connected(const Fd& socket);
/// What such an errno means in the middle of a conversation.
Error lost_connection(int number);

}  // namespace pliant::net
