// Somebody on the network of two hosts who is not on the path between them: sees every packet, stops none, and sends
// segments in the name of either end into connections that are just being made.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace pliant::cli_test {

class Injector {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// Between two network namespaces whose interfaces are called eth0. Every text is sent, at every one of the offsets
  /// into what the other end has not said yet, to both ends of the next `most` connections.
  Injector(const std::string& one, const std::string& other, std::vector<Bytes> texts,
           std::vector<std::uint32_t> offsets, std::size_t most);
  ~Injector();
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  /// Connections that it has sent something into.
  std::size_t attacked() const { return attacked_.load(); }
  /// It could not listen: why.
  std::string failure() const { return failure_; }

 private:
  void run(const std::string& one, const std::string& other);
  void look_at(int socket, Bytes& frame);
  void inject(int socket, Bytes frame, std::uint32_t seq, std::uint32_t ack);

  const std::vector<Bytes> texts_;
  const std::vector<std::uint32_t> offsets_;
  const std::size_t most_;  // connections
  std::atomic<std::size_t> attacked_{0};
  std::atomic<bool> over_{false}, ready_{false};
  std::string failure_;  // before ready_
  std::thread thread_;
};

}  // namespace pliant::cli_test
