#include "membership/etcd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "membership/directory_store.h"

namespace pliant::membership {
namespace {

constexpr std::string_view kScheme = "etcd://";

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

}  // namespace

// ---- where it is ----

Result<EtcdAddress> parse_etcd_address(const std::string& url) {
  Error bad{Code::invalid,
            fmt::format("'{}' is not a store's address like etcd://10.0.0.1:2379,10.0.0.2:2379/prefix", url)};
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) return bad;
  rest.remove_prefix(kScheme.size());
  EtcdAddress address;
  auto slash = std::min(rest.find('/'), rest.size());
  auto prefix = rest.substr(slash);
  if (!is_prefix(prefix)) return bad;
  if (prefix.size() > 1) address.prefix = prefix;
  if (!address.prefix.ends_with('/')) address.prefix += '/';
  rest = rest.substr(0, slash);
  for (;;) {
    auto comma = rest.find(',');
    auto server = parse_server(rest.substr(0, comma));
    if (!server) return bad;
    address.servers.push_back(*server);
    if (comma == std::string_view::npos) return address;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::unique_ptr<Store>> open_store(net::Loop& loop, const std::string& url) {
  constexpr std::string_view kDirectory = "dir:";
  if (url.starts_with(kDirectory))
    return std::unique_ptr<Store>(std::make_unique<DirectoryStore>(loop, url.substr(kDirectory.size())));
  auto address = parse_etcd_address(url);
  if (!address.ok()) return address.error();
  std::vector<net::Endpoint> servers;
  for (const auto& server : address.value().servers) {
    auto resolved = net::resolve(server.host);
    if (!resolved.ok()) return resolved.error();
    servers.push_back({resolved.value(), server.port});
  }
  return std::unique_ptr<Store>(std::make_unique<Etcd>(loop, std::move(servers), address.value().prefix));
}

// ---- what it does ----

Etcd::Etcd(net::Loop& loop, std::vector<net::Endpoint> servers, std::string prefix, std::chrono::milliseconds patience)
    : loop_(loop), servers_(std::move(servers)), prefix_(std::move(prefix)), patience_(patience) {
  PLIANT_ASSERT(!servers_.empty());
}

void Etcd::read(const std::string& key, std::function<void(Result<Entry>)> done) {
  begin(EtcdQuestion::range, etcd_range(prefix_ + key), [done = std::move(done)](auto answer, const auto&) {
    if (!answer.ok()) return done(answer.error());
    done(std::move(answer.value().found));
  });
}

void Etcd::replace(const std::string& key, std::uint64_t revision, std::string text,
                   std::function<void(Result<Attempt>)> done) {
  if (text.size() > kLongestText) {
    Error error{Code::invalid, fmt::format("a value of {} bytes; {} is the most", text.size(), kLongestText)};
    loop_.post([alive = std::weak_ptr(alive_), done = std::move(done), error = std::move(error)] {
      if (!alive.expired()) done(error);
    });
    return;
  }
  auto body = etcd_txn(prefix_ + key, revision, text);
  begin(EtcdQuestion::txn, std::move(body),
        [done = std::move(done), text = std::move(text)](auto answer, const std::string& doubts) mutable {
          if (!answer.ok()) return done(answer.error());
          auto& told = answer.value();
          if (told.succeeded) return done(Attempt{true, {std::move(text), told.revision}});
          // Whoever was faster may have been ourselves.
          if (!doubts.empty()) return done(Error{Code::peer_lost, "it may have been stored already: " + doubts});
          done(Attempt{false, std::move(told.found)});
        });
}

void Etcd::remove_all(const std::string& prefix, std::function<void(Status)> done) {
  begin(EtcdQuestion::removal, etcd_removal(prefix_ + prefix),
        [done = std::move(done)](auto answer, const auto&) { done(answer.ok() ? Status() : answer.error()); });
}

// ---- one server after the other ----

void Etcd::begin(EtcdQuestion question, std::string body, Done done) {
  auto number = next_++;
  operations_.emplace(number, Operation{question, std::move(body), std::move(done), good_});
  attempt(number);
}

void Etcd::attempt(std::uint64_t number) {
  auto& operation = operations_.at(number);
  ++operation.attempts;
  net::HttpRequest request{
      "POST", etcd_path(operation.question), operation.body, {{"Content-Type", "application/json"}}};
  operation.call = std::make_unique<net::HttpCall>(
      loop_, servers_[operation.server], request,
      [this, number](Result<net::HttpAnswer> told) { ended(number, std::move(told)); }, patience_);
}

void Etcd::ended(std::uint64_t number, Result<net::HttpAnswer> told) {
  auto& operation = operations_.at(number);
  const auto& server = servers_[operation.server];
  Result<EtcdAnswer> answer = told.error();
  if (told.ok()) answer = understand_etcd(operation.question, told.value());
  if (told.ok() && !answer.ok()) answer = Error{answer.error().code, server.text() + ": " + answer.error().message};
  if (!answer.ok() && try_next(number, answer.error())) return;
  if (answer.ok()) good_ = operation.server;
  auto last = operations_.extract(number);  // the callback may do anything, to this object too
  if (!answer.ok()) answer = Error{answer.error().code, last.mapped().failures};
  last.mapped().done(std::move(answer), last.mapped().doubts);
}

/// A server that says no speaks for all of them.
bool Etcd::try_next(std::uint64_t number, const Error& error) {
  auto& operation = operations_.at(number);
  if (!operation.failures.empty()) operation.failures += "; ";
  operation.failures += error.message;
  if (error.code == Code::io || operation.attempts == servers_.size()) return false;
  if (operation.call->sent()) operation.doubts += (operation.doubts.empty() ? "" : "; ") + error.message;
  operation.server = (operation.server + 1) % servers_.size();
  attempt(number);  // from within the callback of the call before, which that one allows
  return true;
}

}  // namespace pliant::membership
