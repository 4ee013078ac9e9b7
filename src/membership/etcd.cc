#include "membership/etcd.h"

#include <fmt/format.h>

#include <utility>

#include "membership/directory_store.h"
#include "membership/etcd_address.h"
#include "net/trust.h"

namespace pliant::membership {
namespace {

constexpr std::size_t kLongestPassword = 1024;

/// Without the newline that editors leave.
Result<std::string> read_password(const std::string& file) {
  auto text = net::read_private(file, kLongestPassword);
  if (!text.ok()) return text.error();
  auto password = std::move(text).value();
  if (password.ends_with('\n')) password.pop_back();
  if (password.empty()) return Error{Code::invalid, file + " holds no password"};
  return password;
}

Result<EtcdLogin> login_of(const EtcdAddress& address) {
  if (address.user.empty()) return EtcdLogin{};
  auto password = read_password(address.password_file);
  if (!password.ok()) return password.error();
  return EtcdLogin{address.user, std::move(password).value()};
}

Result<std::vector<net::HttpServer>> servers_of(const EtcdAddress& address) {
  std::shared_ptr<const net::TlsContext> tls;
  if (address.tls) {
    auto opened = net::TlsContext::open({address.ca, address.cert, address.key});
    if (!opened.ok()) return opened.error();
    tls = std::move(opened).value();
  }
  std::vector<net::HttpServer> servers;
  for (const auto& server : address.servers) {
    auto resolved = net::resolve(server.host);
    if (!resolved.ok()) return resolved.error();
    servers.emplace_back(net::Endpoint{resolved.value(), server.port}, server.host, tls);
  }
  return servers;
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(net::Loop& loop, const std::string& url) {
  constexpr std::string_view kDirectory = "dir:";
  if (url.starts_with(kDirectory))
    return std::unique_ptr<Store>(std::make_unique<DirectoryStore>(loop, url.substr(kDirectory.size())));
  auto address = parse_etcd_address(url);
  if (!address.ok()) return address.error();
  auto servers = servers_of(address.value());
  if (!servers.ok()) return servers.error();
  auto login = login_of(address.value());
  if (!login.ok()) return login.error();
  return std::unique_ptr<Store>(std::make_unique<Etcd>(loop, std::move(servers).value(), address.value().prefix,
                                                       Etcd::kPatience, std::move(login).value()));
}

// ---- what it does ----

Etcd::Etcd(net::Loop& loop, std::vector<net::HttpServer> servers, std::string prefix,
           std::chrono::milliseconds patience, EtcdLogin login)
    : loop_(loop),
      servers_(std::move(servers)),
      prefix_(std::move(prefix)),
      patience_(patience),
      login_(std::move(login)) {
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

/// Whoever has a user's name gets a token for it first.
void Etcd::attempt(std::uint64_t number) {
  if (!login_.user.empty() && token_.empty()) return log_in(number);
  auto& operation = operations_.at(number);
  operation.asked = true;
  net::HttpRequest request{
      "POST", etcd_path(operation.question), operation.body, {{"Content-Type", "application/json"}}};
  if (!token_.empty()) request.headers.emplace_back("Authorization", token_);
  operation.call = std::make_unique<net::HttpCall>(
      loop_, servers_[operation.server], request,
      [this, number](Result<net::HttpAnswer> told) { answered(number, std::move(told)); }, patience_);
}

/// Only one at a time: passwords cost a server time by design.
void Etcd::log_in(std::uint64_t number) {
  auto& operation = operations_.at(number);
  operation.asked = false;
  if (std::exchange(logging_in_, true)) return waiting_.push_back(number);
  net::HttpRequest request{"POST", kEtcdLoginPath, etcd_login(login_), {{"Content-Type", "application/json"}}};
  operation.call = std::make_unique<net::HttpCall>(
      loop_, servers_[operation.server], request,
      [this, number](Result<net::HttpAnswer> told) { logged_in(number, std::move(told)); }, kLoginFactor * patience_);
}

void Etcd::logged_in(std::uint64_t number, Result<net::HttpAnswer> told) {
  logging_in_ = false;
  auto token = told.ok() ? understand_etcd_login(told.value()) : told.error();
  if (token.ok()) token_ = token.value();
  for (auto other : std::exchange(waiting_, {})) attempt(other);
  if (token.ok()) return attempt(number);
  if (!told.ok()) return ended(number, told.error());
  auto words = fmt::format("user '{}' is not let in: {}", login_.user, token.error().message);
  ended(number, named(number, {token.error().code, std::move(words)}));
}

void Etcd::answered(std::uint64_t number, Result<net::HttpAnswer> told) {
  if (!told.ok()) return ended(number, told.error());
  auto& operation = operations_.at(number);
  auto answer = understand_etcd(operation.question, told.value());
  bool without_token = !answer.ok() && answer.error().code == Code::refused;
  if (without_token && !login_.user.empty() && !std::exchange(operation.renewed, true)) {
    token_.clear();
    return attempt(number);
  }
  if (without_token) answer = Error{Code::io, answer.error().message};
  ended(number, answer.ok() ? std::move(answer) : named(number, answer.error()));
}

/// With the server that says so.
Error Etcd::named(std::uint64_t number, const Error& error) const {
  return {error.code, servers_[operations_.at(number).server].endpoint.text() + ": " + error.message};
}

void Etcd::ended(std::uint64_t number, Result<EtcdAnswer> answer) {
  if (!answer.ok() && try_next(number, answer.error())) return;
  if (answer.ok()) good_ = operations_.at(number).server;
  auto last = operations_.extract(number);  // the callback may do anything, to this object too
  if (!answer.ok()) answer = Error{answer.error().code, last.mapped().failures};
  last.mapped().done(std::move(answer), last.mapped().doubts);
}

/// A server that says no speaks for all of them.
bool Etcd::try_next(std::uint64_t number, const Error& error) {
  auto& operation = operations_.at(number);
  if (!operation.failures.empty()) operation.failures += "; ";
  operation.failures += error.message;
  if (error.code == Code::io || ++operation.failed == servers_.size()) return false;
  if (operation.asked && operation.call->sent())
    operation.doubts += (operation.doubts.empty() ? "" : "; ") + error.message;
  operation.server = (operation.server + 1) % servers_.size();
  attempt(number);  // from within the callback of the call before, which that one allows
  return true;
}

}  // namespace pliant::membership
