// What is said between us and an etcd server through its HTTP gateway (etcd 3.4 and later): JSON, in which keys and
// values are base64, and numbers text. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "membership/store.h"
#include "net/http_answer.h"

namespace pliant::membership {

enum class EtcdQuestion : std::uint8_t { range, txn, removal };

struct EtcdAnswer {
  std::uint64_t revision = 0;  ///< of the whole store, after what was asked for was done
  bool succeeded = false;      ///< of a txn: it was as we thought, and the value is stored
  Entry found{};               ///< of a range, and of a txn that did not succeed
};

std::string etcd_path(EtcdQuestion question);
/// The body of a question: for the value of a key,
std::string etcd_range(const std::string& key);
/// to store a value if there is still `revision` of it (0: none), or else to be told what there is,
std::string etcd_txn(const std::string& key, std::uint64_t revision, const std::string& text);
/// to remove all keys that begin so. REQUIRES: one of the prefix's bytes is not 0xff.
std::string etcd_removal(const std::string& prefix);

/// A user of the cluster.
struct EtcdLogin {
  std::string user{};  ///< empty: none
  std::string password{};
};
constexpr const char* kEtcdLoginPath = "/v3/auth/authenticate";
/// The body of a question for a token.
std::string etcd_login(const EtcdLogin& login);
/// The token, which goes into the header Authorization of every question. Errors as below.
Result<std::string> understand_etcd_login(const net::HttpAnswer& answer);

/// Code::peer_lost if the server says that it cannot answer now, Code::refused if it wants another token, Code::io if
/// it will not answer, all with its own words; Code::protocol if this is not what a server answers to the question.
Result<EtcdAnswer> understand_etcd(EtcdQuestion question, const net::HttpAnswer& answer);

}  // namespace pliant::membership
