// What a store's server answers, by anybody: it is understood or refused, and a value is no longer than what came.
//   byte 0: the question; byte 1: the HTTP status; the rest: the answer's body
#include <string>

#include "base/base64.h"
#include "fuzz/fuzz.h"
#include "membership/etcd_messages.h"

namespace pliant::fuzz {
namespace {

using membership::EtcdQuestion;

constexpr int kStatuses[] = {200, 400, 404, 503};

/// There is one text for every value, and the other way round.
void check_base64(const std::string& text) {
  auto bytes = from_base64(text);
  if (bytes.ok()) PLIANT_ASSERT(to_base64(bytes.value()) == text);
  PLIANT_ASSERT(from_base64(to_base64(text)).value() == text);
}

Bytes input_of(EtcdQuestion question, std::uint8_t status, const std::string& body) {
  Bytes bytes = {static_cast<std::uint8_t>(question), status};
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::string kHeader = R"({"header":{"cluster_id":"6","member_id":"7","revision":"9","raft_term":"2"})";
  const std::string kFound = R"("kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"4","value":"YmFy"}])";
  return {
      input_of(EtcdQuestion::removal, 0, kHeader + "}"),
      input_of(EtcdQuestion::range, 0, kHeader + "}"),
      input_of(EtcdQuestion::range, 0, kHeader + "," + kFound + "}"),
      input_of(EtcdQuestion::txn, 0, kHeader + R"(,"succeeded":true})"),
      input_of(EtcdQuestion::txn, 0, kHeader + R"(,"responses":[{"response_range":)" + kHeader + "," + kFound + "}}]}"),
      input_of(EtcdQuestion::range, 0, kHeader + R"(,"token":"sssvIpwfnLAcWAQH.9"})"),
      input_of(EtcdQuestion::range, 1, R"({"error":"etcdserver: invalid auth token","code":16})"),
      input_of(EtcdQuestion::txn, 1, R"({"error":"etcdserver: key is not provided","code":3})"),
      input_of(EtcdQuestion::txn, 3, R"({"error":"etcdserver: no leader","code":14})"),
      input_of(EtcdQuestion::range, 2, "Zm9vYg==")};
}

/// One line without spaces, that fits into a header.
void check_login(const net::HttpAnswer& answer) {
  auto token = membership::understand_etcd_login(answer);
  if (!token.ok()) {
    PLIANT_ASSERT(token.error().message.find('\n') == std::string::npos);
    return;
  }
  PLIANT_ASSERT(answer.status == 200 && !token.value().empty() && token.value().size() <= answer.body.size());
  for (char c : token.value()) PLIANT_ASSERT(c > ' ' && c <= '~');
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 2) return;
  auto question = static_cast<EtcdQuestion>(input[0] % 3);
  auto status = kStatuses[input[1] % 4];
  std::string body(reinterpret_cast<const char*>(input.data()) + 2, input.size() - 2);
  check_base64(body);
  check_login({status, body});
  auto answer = membership::understand_etcd(question, {status, body});
  if (!answer.ok()) {
    PLIANT_ASSERT(answer.error().message.size() < 300);
    PLIANT_ASSERT(answer.error().message.find('\n') == std::string::npos);
    return;
  }
  const auto& [revision, succeeded, found] = answer.value();
  PLIANT_ASSERT(status == 200 && revision > 0);
  PLIANT_ASSERT(found.text.size() <= body.size());
  PLIANT_ASSERT(found.revision > 0 || found.text.empty());
  PLIANT_ASSERT(!succeeded || (question == EtcdQuestion::txn && found.revision == 0));
}

}  // namespace pliant::fuzz
