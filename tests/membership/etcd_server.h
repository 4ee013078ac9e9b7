// A real etcd server of one member, with its data in a folder that goes away with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "net/http.h"
#include "net/tcp.h"

namespace pliant::etcd_test {

class EtcdServer {
 public:
  /// Tests are skipped where it is not.
  static bool is_installed();

  /// Files of a server that speaks TLS.
  struct Tls {
    std::string ca, cert, key;
    bool asks_clients = false;  ///< for a certificate of that CA; the server's own must do as one
  };

  /// Starts one at an address of this machine's and waits until it answers; throws if it does not.
  explicit EtcdServer(const std::string& address = "127.0.0.1", std::optional<Tls> tls = std::nullopt);
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  const net::Endpoint& endpoint() const { return endpoint_; }
  /// As open_store() takes it.
  std::string url(const std::string& prefix = "") const {
    return (tls_ ? "etcds://" : "etcd://") + endpoint_.text() + prefix;
  }
  /// From now on only users get in: "root" and "job", each with this password; "job" may use keys under /jobs/.
  void ask_for_passwords(const std::string& password);

  /// As if the power had failed.
  void kill();
  /// After kill(): again at the same port, with what it had stored.
  void restart();
  /// It stays connected to whoever is, and says nothing until go_on().
  void freeze();
  void go_on();

 private:
  bool start();
  bool is_healthy() const;
  bool has_ended();
  std::string answer(const net::HttpRequest& request) const;

  const std::optional<Tls> tls_;
  std::string folder_;
  net::Endpoint endpoint_;
  pid_t pid_ = -1;
};

}  // namespace pliant::etcd_test
