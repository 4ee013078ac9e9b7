// A real etcd server of one member, with its data in a folder that goes away with it.
#pragma once

#include <sys/types.h>

#include <string>

#include "net/tcp.h"

namespace pliant::etcd_test {

class EtcdServer {
 public:
  /// Tests are skipped where it is not.
  static bool is_installed();

  /// Starts one at an address of this machine's and waits until it answers; throws if it does not.
  explicit EtcdServer(const std::string& address = "127.0.0.1");
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  const net::Endpoint& endpoint() const { return endpoint_; }
  /// As open_store() takes it.
  std::string url(const std::string& prefix = "") const { return "etcd://" + endpoint_.text() + prefix; }

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

  std::string folder_;
  net::Endpoint endpoint_;
  pid_t pid_ = -1;
};

}  // namespace pliant::etcd_test
