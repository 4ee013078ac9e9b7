// A gate and who calls at it, for tests of both.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "net/gate.h"
#include "net/tcp_pair.h"

namespace pliant::net {

using namespace std::chrono_literals;
using Bytes = std::vector<std::uint8_t>;

constexpr std::chrono::milliseconds kLong{kHangGuard};

/// A loop on a thread of its own, a gate on it, and who has come in. What lives on the loop is touched there only.
class Place {
 public:
  Place() : thread_([this] { loop_.run(); }) {}
  ~Place() {
    loop_.stop();
    thread_.join();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  template <class Task>
  auto on_loop(Task task) {
    // Shared: the result may be had before the task has quite returned.
    auto packaged = std::make_shared<std::packaged_task<std::invoke_result_t<Task>()>>(std::move(task));
    auto result = packaged->get_future();
    loop_.post([packaged] { (*packaged)(); });
    return result.get();
  }

  void wait_until(const std::function<bool()>& condition) {
    auto end = std::chrono::steady_clock::now() + kLong;
    while (!on_loop(condition)) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("it does not happen");
      std::this_thread::sleep_for(1ms);
    }
  }

  void open_gate(GateOptions options = {}, const std::string& address = "127.0.0.1") {
    on_loop([&] {
      auto listener = tcp_listen(address, {}).or_throw();
      at_ = listener.endpoint;
      gate_ = std::make_unique<Gate>(
          loop_, std::move(listener.socket), secret_, "job", [this](Guest guest) { welcome(std::move(guest)); },
          std::move(options));
    });
  }

  /// One call, from its beginning to its end.
  Result<Guest> call(const Introduction& who, std::chrono::milliseconds patience = kLong) {
    return call(at_, secret_, who, patience);
  }
  Result<Guest> call(const Endpoint& to, const Secret& secret, const Introduction& who,
                     std::chrono::milliseconds patience = kLong, const std::string& from = "") {
    std::promise<Result<Guest>> end;
    auto call = on_loop([&] {
      return std::make_unique<Call>(
          loop_, to, from, secret, who, [&](Result<Guest> result) { end.set_value(std::move(result)); }, patience);
    });
    auto result = end.get_future().get();
    on_loop([&] { call.reset(); });
    return result;
  }

  std::uint64_t refused() {
    return on_loop([this] { return gate_->refused(); });
  }
  std::size_t pending() {
    return on_loop([this] { return gate_->pending(); });
  }

  void welcome(Guest guest) {
    guests_.push_back(std::move(guest));
    if (on_guest_) on_guest_();
  }

  Loop loop_;
  Secret secret_ = Secret::random();
  Endpoint at_;
  std::vector<Guest> guests_;
  std::function<void()> on_guest_;
  std::unique_ptr<Gate> gate_;

 private:
  std::thread thread_;
};

inline Introduction someone() { return {Purpose::letters, "job", 3, 5, 77, 1}; }

/// A connection that is up to no good; it leaves no ghosts behind that use up ports.
inline Fd raw_connection(const Endpoint& to) {
  auto socket = tcp_connect(to).or_throw();
  wait_for(socket.get(), POLLOUT);
  tcp_connected(socket).or_throw();
  linger at_once{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  return socket;
}

inline void put(const Fd& socket, const Bytes& bytes) {
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

inline Bytes get(const Fd& socket) {
  wait_for(socket.get(), POLLIN);
  Bytes bytes(4096);
  auto size = recv(socket.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return bytes;
}

}  // namespace pliant::net
