// A store in an etcd cluster.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "membership/etcd_messages.h"
#include "membership/store.h"
#include "net/http.h"
#include "net/tcp.h"

namespace pliant::membership {

/// Asks one server, and the next one if that one does not answer, each once; begins with the one that answered last.
/// With a login it asks for a token first, and again when a server does not know that any more.
class Etcd final : public Store {
 public:
  /// With one server. A healthy one needs milliseconds, the time that a disk takes.
  static constexpr std::chrono::milliseconds kPatience{500};
  /// So many times as long for a token: a server takes a tenth of a second of computing to check a password.
  static constexpr int kLoginFactor = 10;

  /// REQUIRES: some servers.
  Etcd(net::Loop& loop, std::vector<net::HttpServer> servers, std::string prefix,
       std::chrono::milliseconds patience = kPatience, EtcdLogin login = {});
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  void read(const std::string& key, std::function<void(Result<Entry>)> done) override;
  void replace(const std::string& key, std::uint64_t revision, std::string text,
               std::function<void(Result<Attempt>)> done) override;
  void remove_all(const std::string& prefix, std::function<void(Status)> done) override;

 private:
  /// `doubts`: why an earlier server may have done it already; empty if none may have.
  using Done = std::function<void(Result<EtcdAnswer>, const std::string& doubts)>;
  struct Operation {
    EtcdQuestion question;
    std::string body;
    Done done;
    std::size_t server = 0;
    std::size_t failed = 0;               // servers
    bool asked = false, renewed = false;  // the question, and not for a token; the token
    std::string failures{}, doubts{};
    std::unique_ptr<net::HttpCall> call{};
  };
  void begin(EtcdQuestion question, std::string body, Done done);
  void attempt(std::uint64_t number);
  void log_in(std::uint64_t number);
  void logged_in(std::uint64_t number, Result<net::HttpAnswer> told);
  void answered(std::uint64_t number, Result<net::HttpAnswer> told);
  void ended(std::uint64_t number, Result<EtcdAnswer> answer);
  Error named(std::uint64_t number, const Error& error) const;
  bool try_next(std::uint64_t number, const Error& error);

  net::Loop& loop_;
  const std::vector<net::HttpServer> servers_;
  const std::string prefix_;
  const std::chrono::milliseconds patience_;
  const EtcdLogin login_;
  std::string token_;  // that a server has given for it; empty: none, or not any more
  bool logging_in_ = false;
  std::vector<std::uint64_t> waiting_;  // operations, for the token
  std::size_t good_ = 0;                // the server that answered last
  std::map<std::uint64_t, Operation> operations_;
  std::uint64_t next_ = 0;
  std::shared_ptr<void> alive_ = std::make_shared<int>();  // shared: what was posted looks whether it is gone
};

}  // namespace pliant::membership
