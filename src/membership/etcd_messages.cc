#include "membership/etcd_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/base64.h"
#include "net/http_json.h"

namespace pliant::membership {
namespace {

using net::member;
using nlohmann::json;

// gRPC's numbers for errors that another server, or another moment, may not have.
constexpr int kDeadlineExceeded = 4;
constexpr int kUnavailable = 14;
// The token is none, or not any more. After a change of users or roles the same is said in words only.
constexpr int kUnauthenticated = 16;
constexpr const char* kTokenIsOld = "revision of auth store is old";

Error nonsense(const std::string& what) { return Error{Code::protocol, "not what an etcd server answers: " + what}; }

/// An etcd server leaves out what is zero.
std::optional<std::uint64_t> number_in(const json& object, const char* name) {
  const auto& value = member(object, name);
  if (value.is_null()) return 0;
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  std::uint64_t number = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// One short line, whatever they sent.
std::string words_of(const json& text) {
  constexpr std::size_t kMost = 200;
  if (!text.is_string()) return "an error without words";
  auto words = text.get<std::string>().substr(0, kMost);
  while (words.ends_with('\n')) words.pop_back();
  std::ranges::replace_if(
      words, [](unsigned char c) { return std::iscntrl(c); }, ' ');
  return words;
}

Error refusal(int status, const std::string& body, const json& told) {
  const auto& error = member(told, "error");
  const auto& code = member(told, "code");
  if (error.is_null() && status >= 500) return Error{Code::peer_lost, fmt::format("HTTP status {}", status)};
  if (error.is_null())
    return nonsense(
        fmt::format("HTTP status {}{}{}", status, body.empty() ? "" : ": ", body.empty() ? "" : words_of(body)));
  bool passes = code == kUnavailable || code == kDeadlineExceeded;
  auto words = words_of(error);
  bool wants_token = code == kUnauthenticated || words.find(kTokenIsOld) != std::string::npos;
  return Error{passes ? Code::peer_lost : wants_token ? Code::refused : Code::io, words};
}

Result<Entry> entry_in(const json& range) {
  if (!member(range, "header").is_object()) return nonsense("no header");
  const auto& found = member(range, "kvs");
  if (found.is_null()) return Entry{};
  if (!found.is_array() || found.size() != 1) return nonsense("not one value");
  auto revision = number_in(found[0], "mod_revision");
  if (!revision || *revision == 0) return nonsense("a value without a revision");
  const auto& value = member(found[0], "value");
  if (value.is_null()) return Entry{"", *revision};
  if (!value.is_string()) return nonsense("a value that is no text");
  auto text = from_base64(value.get_ref<const std::string&>());
  if (!text.ok()) return nonsense("a value that is not base64");
  return Entry{std::move(text).value(), *revision};
}

/// What the failed branch of our txn says: the one range that it holds.
Result<Entry> entry_in_responses(const json& responses) {
  if (!responses.is_array() || responses.size() != 1) return nonsense("not one response");
  return entry_in(member(responses[0], "response_range"));
}

}  // namespace

std::string etcd_path(EtcdQuestion question) {
  switch (question) {
    case EtcdQuestion::range:
      return "/v3/kv/range";
    case EtcdQuestion::txn:
      return "/v3/kv/txn";
    case EtcdQuestion::removal:
      return "/v3/kv/deleterange";
  }
  PLIANT_ASSERT(false);
}

std::string etcd_range(const std::string& key) { return json{{"key", to_base64(key)}}.dump(); }

std::string etcd_txn(const std::string& key, std::uint64_t revision, const std::string& text) {
  auto name = to_base64(key);
  json compare = {{"key", name}, {"result", "EQUAL"}};
  compare["target"] = revision == 0 ? "CREATE" : "MOD";
  compare[revision == 0 ? "create_revision" : "mod_revision"] = std::to_string(revision);
  json put = {{"request_put", {{"key", name}, {"value", to_base64(text)}}}};
  json range = {{"request_range", {{"key", name}}}};
  return json{{"compare", json::array({compare})}, {"success", json::array({put})}, {"failure", json::array({range})}}
      .dump();
}

std::string etcd_removal(const std::string& prefix) {
  auto end = prefix;  // the first key behind all that begin so
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  PLIANT_ASSERT(!end.empty());
  ++end.back();
  return json{{"key", to_base64(prefix)}, {"range_end", to_base64(end)}}.dump();
}

std::string etcd_login(const EtcdLogin& login) {
  return json{{"name", login.user}, {"password", login.password}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<std::string> understand_etcd_login(const net::HttpAnswer& answer) {
  auto told = net::parse_json(answer.body);
  if (answer.status != 200) {
    auto error = refusal(answer.status, answer.body, told);
    return Error{error.code == Code::refused ? Code::io : error.code, error.message};
  }
  const auto& token = member(told, "token");
  auto fits = [](const std::string& text) {
    return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c <= '~'; });
  };
  if (!token.is_string() || !fits(token.get_ref<const std::string&>())) return nonsense("no token");
  return token.get<std::string>();
}

Result<EtcdAnswer> understand_etcd(EtcdQuestion question, const net::HttpAnswer& answer) {
  auto told = net::parse_json(answer.body);
  if (answer.status != 200) return refusal(answer.status, answer.body, told);
  const auto& header = member(told, "header");
  auto revision = number_in(header, "revision");
  if (!header.is_object() || !revision || *revision == 0) return nonsense("no header with a revision");
  EtcdAnswer understood{*revision};
  if (question == EtcdQuestion::removal) return understood;
  understood.succeeded = question == EtcdQuestion::txn && member(told, "succeeded") == true;
  if (understood.succeeded) return understood;
  auto found = question == EtcdQuestion::range ? entry_in(told) : entry_in_responses(member(told, "responses"));
  if (!found.ok()) return found.error();
  understood.found = std::move(found).value();
  return understood;
}

}  // namespace pliant::membership
