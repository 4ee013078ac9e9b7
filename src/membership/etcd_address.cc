#include "membership/etcd_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "net/tcp.h"

namespace pliant::membership {
namespace {

constexpr std::string_view kPlain = "etcd://";
constexpr std::string_view kTls = "etcds://";

bool is_name(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

/// "host", "host:2379", "[fd00::1]", "[fd00::1]:2379".
std::optional<EtcdAddress::Server> parse_server(std::string_view text) {
  EtcdAddress::Server server;
  auto end = text.starts_with('[') ? text.find(']') : text.find(':');
  if (text.starts_with('[') && end == std::string_view::npos) return std::nullopt;
  if (text.starts_with('[')) ++end;
  auto host = text.substr(0, end);
  if (host.size() < text.size()) {
    auto digits = text.substr(host.size() + 1);
    auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), server.port);
    bool whole = code == std::errc() && stop == digits.data() + digits.size();
    if (text[host.size()] != ':' || !whole || server.port == 0) return std::nullopt;
  }
  server.host = host;
  if (!host.starts_with('[')) return is_name(host) ? std::optional(server) : std::nullopt;
  auto six = net::parse_endpoint(fmt::format("{}:{}", host, server.port));
  if (!six.ok()) return std::nullopt;
  server.host = six.value().address;
  return server;
}

bool is_prefix(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isgraph(c) && c != '?' && c != '#' && c != '%'; });
}

struct Option {
  std::string_view name;
  std::string EtcdAddress::*value;
};
constexpr std::array<Option, 5> kOptions = {{{"ca", &EtcdAddress::ca},
                                             {"cert", &EtcdAddress::cert},
                                             {"key", &EtcdAddress::key},
                                             {"user", &EtcdAddress::user},
                                             {"password", &EtcdAddress::password_file}}};

/// As in any URL: what could mean something else is written as %2f.
std::string encoded(std::string_view text) {
  std::string out;
  for (unsigned char c : text) {
    bool plain = std::isalnum(c) || c == '/' || c == '.' || c == '-' || c == '_';
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02x}", c);
  }
  return out;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    unsigned value = 0;
    auto digits = text.substr(at + 1, 2);
    auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (code != std::errc() || digits.size() != 2 || stop != digits.data() + 2 || value == 0) return std::nullopt;
    out += static_cast<char>(value);
    at += 2;
  }
  return out;
}

/// "ca=FILE&user=NAME".
bool parse_options(std::string_view text, EtcdAddress& address) {
  while (!text.empty()) {
    auto entry = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    auto equals = std::min(entry.find('='), entry.size());
    auto option = std::ranges::find(kOptions, entry.substr(0, equals), &Option::name);
    auto value = decoded(entry.substr(std::min(equals + 1, entry.size())));
    if (option == kOptions.end() || !(address.*option->value).empty() || !value || value->empty()) return false;
    address.*option->value = *value;
  }
  return address.cert.empty() == address.key.empty() && address.user.empty() == address.password_file.empty();
}

bool parse_servers(std::string_view text, EtcdAddress& address) {
  for (;;) {
    auto comma = text.find(',');
    auto server = parse_server(text.substr(0, comma));
    if (!server) return false;
    address.servers.push_back(*server);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<EtcdAddress> parse_etcd_address(const std::string& url) {
  Error bad{Code::invalid, fmt::format("'{}' is not a store's address like etcd://10.0.0.1:2379,10.0.0.2:2379/prefix, "
                                       "or etcds:// with TLS",
                                       url)};
  std::string_view rest = url;
  EtcdAddress address;
  address.tls = rest.starts_with(kTls);
  if (!address.tls && !rest.starts_with(kPlain)) return bad;
  rest.remove_prefix(address.tls ? kTls.size() : kPlain.size());
  auto question = address.tls ? std::min(rest.find('?'), rest.size()) : rest.size();
  if (question < rest.size() && !parse_options(rest.substr(question + 1), address)) return bad;
  rest = rest.substr(0, question);
  auto slash = std::min(rest.find('/'), rest.size());
  auto prefix = rest.substr(slash);
  if (!is_prefix(prefix)) return bad;
  if (prefix.size() > 1) address.prefix = prefix;
  if (!address.prefix.ends_with('/')) address.prefix += '/';
  if (!parse_servers(rest.substr(0, slash), address)) return bad;
  return address;
}

std::string etcd_url(const EtcdAddress& address) {
  std::string url(address.tls ? kTls : kPlain);
  for (const auto& server : address.servers) {
    bool six = server.host.find(':') != std::string::npos;
    url += fmt::format("{}{}{}{}:{}", url.ends_with('/') ? "" : ",", six ? "[" : "", server.host, six ? "]" : "",
                       server.port);
  }
  url += address.prefix;
  char separator = '?';
  for (const auto& option : kOptions) {
    if ((address.*option.value).empty()) continue;
    url += fmt::format("{}{}={}", separator, option.name, encoded(address.*option.value));
    separator = '&';
  }
  return url;
}

}  // namespace pliant::membership
