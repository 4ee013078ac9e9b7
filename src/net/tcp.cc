#include "net/tcp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

namespace pliant::net {
namespace {

// Heartbeats tell sooner that a host is gone; these end what nobody asks about any more. An idle connection is probed
// after kIdle and every kBetween. The kernel gives up kGiveUp after the last sign of life, and also when data has
// waited that long for a reader who does not read: whoever keeps a connection keeps reading.
constexpr int kIdleSeconds = 5;
constexpr int kBetweenSeconds = 2;
constexpr int kGiveUpMilliseconds = 15'000;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

std::optional<Address> make_address(const std::string& text, std::uint16_t port) {
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    address.length = sizeof(*four);
    return address;
  }
  if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    address.length = sizeof(*six);
    return address;
  }
  return std::nullopt;
}

/// Nothing unless it is an IPv4 or IPv6 address. One address has one text.
std::optional<Endpoint> endpoint_of(const sockaddr* raw) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (raw->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(raw);
    inet_ntop(AF_INET, &four->sin_addr, text.data(), text.size());
    return Endpoint{text.data(), ntohs(four->sin_port)};
  }
  if (raw->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(raw);
    inet_ntop(AF_INET6, &six->sin6_addr, text.data(), text.size());
    return Endpoint{text.data(), ntohs(six->sin6_port)};
  }
  return std::nullopt;
}

/// Good on one wire only.
bool is_link_local(const sockaddr* raw) {
  if (raw->sa_family == AF_INET) {
    auto address = ntohl(reinterpret_cast<const sockaddr_in*>(raw)->sin_addr.s_addr);
    return address >> 16 == 0xa9fe;  // 169.254.0.0/16
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(raw)->sin6_addr);
}

Error not_an_address(const std::string& text) {
  return Error{Code::invalid, fmt::format("'{}' is not an IPv4 or IPv6 address", text)};
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

Status set(int socket, int level, int option, int value, const char* name) {
  if (setsockopt(socket, level, option, &value, sizeof(value)) != 0) return errno_error(name);
  return {};
}

Status tune(int socket) {
  PLIANT_TRY(set(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  PLIANT_TRY(set(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  PLIANT_TRY(set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds, "TCP_KEEPIDLE"));
  PLIANT_TRY(set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kBetweenSeconds, "TCP_KEEPINTVL"));
  return set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kGiveUpMilliseconds, "TCP_USER_TIMEOUT");
}

Result<Fd> open_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno_error("socket");
  return socket;
}

/// Nothing if the port is taken.
Result<std::optional<Fd>> listen_if_free(const Address& address, const std::string& name) {
  auto opened = open_socket(address.family());
  if (!opened.ok()) return opened.error();
  auto socket = std::move(opened).value();
  PLIANT_TRY(set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (address.family() == AF_INET6) PLIANT_TRY(set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY"));
  // Two may share a port until one of them listens, so either call may find it taken.
  bool listens = bind(socket.get(), address.raw(), address.length) == 0 && ::listen(socket.get(), SOMAXCONN) == 0;
  if (listens) return std::optional<Fd>(std::move(socket));
  if (errno == EADDRINUSE) return std::optional<Fd>();
  return errno_error("cannot listen at " + name);
}

Result<Listener> with_its_port(Fd socket) {
  Address bound;
  bound.length = sizeof(bound.storage);
  if (getsockname(socket.get(), bound.raw(), &bound.length) != 0) return errno_error("getsockname");
  auto endpoint = endpoint_of(bound.raw());
  PLIANT_ASSERT(endpoint);
  return Listener{std::move(socket), std::move(*endpoint)};
}

Error cannot_connect(const std::string& to, int number) {
  return Error{Code::peer_lost, fmt::format("cannot connect to {}: {}", to, std::generic_category().message(number))};
}

Status bind_from(int socket, int family, const std::string& from) {
  auto address = make_address(from, 0);
  if (!address) return not_an_address(from);
  if (address->family() != family)
    return Error{Code::invalid, fmt::format("cannot call from {}: IPv4 and IPv6 do not mix", from)};
  // The port is chosen when the connection is made: there are more of them then.
  PLIANT_TRY(set(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT"));
  if (bind(socket, address->raw(), address->length) != 0) return errno_error("cannot call from " + from);
  return {};
}

/// The waiting connection is broken, or a signal came: the next one may be better.
bool is_no_connection(int number) {
  constexpr int kNumbers[] = {EAGAIN,    EINTR,  ECONNABORTED, EPERM,      EPROTO,      ENOPROTOOPT,
                              EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, ENETDOWN};
  return std::ranges::find(kNumbers, number) != std::end(kNumbers);
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

std::string names_of(const Interfaces& all) {
  std::vector<std::string> names;
  for (const auto* at = all.get(); at; at = at->ifa_next)
    if (std::ranges::find(names, at->ifa_name) == names.end()) names.emplace_back(at->ifa_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<std::string> address_in(const Interfaces& all, const std::string& interface, int family) {
  for (const auto* at = all.get(); at; at = at->ifa_next) {
    if (interface != at->ifa_name || !at->ifa_addr || at->ifa_addr->sa_family != family) continue;
    if (!is_link_local(at->ifa_addr)) return endpoint_of(at->ifa_addr)->address;
  }
  return std::nullopt;
}

}  // namespace

Result<Ports> parse_ports(const std::string& text) {
  auto dash = text.find('-');
  auto first = parse_port(std::string_view(text).substr(0, dash));
  auto last = dash == std::string::npos ? first : parse_port(std::string_view(text).substr(dash + 1));
  bool whole = first && last && *first <= *last && (*first > 0 || *last == 0);
  if (!whole) return Error{Code::invalid, fmt::format("'{}' is not a port, or a range like 4000-4100", text)};
  return Ports{*first, *last};
}

std::string Endpoint::text() const {
  bool six = address.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

Result<Endpoint> parse_endpoint(const std::string& text) {
  Error bad{Code::invalid, fmt::format("'{}' is not an address and a port like 10.0.0.1:4711 or [fd00::1]:4711", text)};
  auto colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  auto host = text.substr(0, colon);
  bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  auto port = parse_port(std::string_view(text).substr(colon + 1));
  auto address = make_address(host, port.value_or(0));
  if (!port || *port == 0 || !address || brackets != (address->family() == AF_INET6)) return bad;
  return *endpoint_of(address->raw());
}

bool is_loopback(const std::string& address) {
  auto parsed = make_address(address, 0);
  if (!parsed) return false;
  if (parsed->family() == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(parsed->raw())->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(parsed->raw())->sin6_addr);
}

Result<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0) return Error{Code::not_found, fmt::format("'{}' has no address: {}", host, gai_strerror(failure))};
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const auto* at = all.get(); at; at = at->ai_next)
    if (auto endpoint = endpoint_of(at->ai_addr)) return endpoint->address;
  return Error{Code::not_found, fmt::format("'{}' has no IPv4 or IPv6 address", host)};
}

Result<std::string> address_towards(const std::string& address) {
  auto there = make_address(address, 9);
  if (!there) return Error{Code::invalid, fmt::format("'{}' is not an address", address)};
  Fd socket(::socket(there->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno_error("socket");
  if (connect(socket.get(), there->raw(), there->length) != 0) return errno_error("no way to " + address);
  Address here;
  here.length = sizeof(here.storage);
  if (getsockname(socket.get(), here.raw(), &here.length) != 0) return errno_error("getsockname");
  auto endpoint = endpoint_of(here.raw());
  if (!endpoint) return Error{Code::internal, "an address of an unknown kind"};
  return endpoint->address;
}

Result<std::string> address_of_interface(const std::string& interface) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return errno_error("looking for network interfaces");
  Interfaces all(found, &freeifaddrs);
  for (int family : {AF_INET, AF_INET6})
    if (auto address = address_in(all, interface, family)) return *address;
  return Error{Code::not_found,
               fmt::format("no interface '{}' with an address of its own; there are: {}", interface, names_of(all))};
}

Result<Listener> tcp_listen(const std::string& address, Ports ports) {
  for (unsigned port = ports.first; port <= ports.last; ++port) {
    auto where = make_address(address, static_cast<std::uint16_t>(port));
    if (!where) return not_an_address(address);
    auto socket = listen_if_free(*where, endpoint_of(where->raw())->text());
    if (!socket.ok()) return socket.error();
    if (socket.value()) return with_its_port(std::move(*socket.value()));
  }
  if (ports.first == ports.last) return Error{Code::io, fmt::format("port {} at {} is taken", ports.first, address)};
  return Error{Code::io, fmt::format("all ports from {} to {} at {} are taken", ports.first, ports.last, address)};
}

Result<std::optional<Fd>> tcp_accept(const Fd& listener) {
  Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket && is_no_connection(errno)) return std::optional<Fd>();
  if (!socket) return errno_error("accept");
  if (!tune(socket.get()).ok()) return std::optional<Fd>();  // broken already
  return std::optional<Fd>(std::move(socket));
}

Result<Fd> tcp_connect(const Endpoint& to, const std::string& from) {
  auto address = make_address(to.address, to.port);
  if (!address) return not_an_address(to.address);
  auto opened = open_socket(address->family());
  if (!opened.ok()) return opened.error();
  auto socket = std::move(opened).value();
  PLIANT_TRY(tune(socket.get()));
  if (!from.empty()) PLIANT_TRY(bind_from(socket.get(), address->family(), from));
  if (::connect(socket.get(), address->raw(), address->length) != 0 && errno != EINPROGRESS)
    return cannot_connect(to.text(), errno);
  return socket;
}

Status tcp_connected(const Fd& socket) {
  int failure = 0;
  socklen_t length = sizeof(failure);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) return errno_error("SO_ERROR");
  Address peer;
  peer.length = sizeof(peer.storage);
  // Nothing went wrong, but nobody is there either: this was asked too early, or a second time.
  if (failure == 0 && getpeername(socket.get(), peer.raw(), &peer.length) != 0) failure = errno;
  if (failure != 0) return Error{Code::peer_lost, "cannot connect: " + std::generic_category().message(failure)};
  return {};
}

Error lost_connection(int number) {
  return {Code::peer_lost, "the connection is lost: " + std::generic_category().message(number)};
}

}  // namespace pliant::net
