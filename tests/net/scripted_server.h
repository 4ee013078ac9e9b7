// A server on the loopback that does what a test tells it to, to one caller after the other. For HTTP, well or badly
// spoken.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "net/tcp.h"
#include "net/tcp_pair.h"

namespace pliant::net {

/// False once the other end is gone.
inline bool say(const Fd& socket, std::string_view text) {
  while (!text.empty()) {
    auto size = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN) return false;
    if (size < 0) wait_for(socket.get(), POLLOUT);
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

/// Adds what comes next; false at the end.
inline bool hear(const Fd& socket, std::string& text) {
  std::string chunk(65536, '\0');
  for (;;) {
    wait_for(socket.get(), POLLIN);
    auto size = recv(socket.get(), chunk.data(), chunk.size(), 0);
    if (size < 0 && errno == EAGAIN) continue;
    if (size > 0) text.append(chunk, 0, static_cast<std::size_t>(size));
    return size > 0;
  }
}

/// A whole request, or what there was of it.
inline std::string hear_request(const Fd& socket) {
  constexpr std::string_view kLength = "Content-Length: ";
  std::string text;
  for (;;) {
    auto head = text.find("\r\n\r\n");
    auto length = text.find(kLength);
    std::size_t body = 0;
    if (length < head) std::from_chars(text.data() + length + kLength.size(), text.data() + head, body);
    if (head != std::string::npos && text.size() >= head + 4 + body) return text;
    if (!hear(socket, text)) return text;
  }
}

inline void until_it_hangs_up(const Fd& socket) {
  for (std::string ignored; hear(socket, ignored);) ignored.clear();
}

class ScriptedServer {
 public:
  using Script = std::function<void(const Fd& socket)>;
  explicit ScriptedServer(Script script, const std::string& address = "127.0.0.1")
      : listener_(tcp_listen(address, {}).or_throw()), thread_([this, script = std::move(script)] { serve(script); }) {}
  ~ScriptedServer() {
    shutdown(listener_.socket.get(), SHUT_RDWR);  // ends the waiting
    thread_.join();
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  /// Hears a request, says this, hangs up.
  static Script answers(std::string text) {
    return [text = std::move(text)](const Fd& socket) {
      hear_request(socket);
      say(socket, text);
    };
  }
  /// An answer in JSON, as servers write it.
  static Script answers_json(const std::string& status, const std::string& body) {
    return answers("HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  const Endpoint& endpoint() const { return listener_.endpoint; }
  int callers() const { return callers_; }

 private:
  void serve(const Script& script) {
    for (;;) {
      pollfd waiting{listener_.socket.get(), POLLIN, 0};
      poll(&waiting, 1, -1);
      auto socket = tcp_accept(listener_.socket);
      if (!socket.ok()) return;
      if (!socket.value()) continue;
      ++callers_;
      script(*socket.value());
    }
  }

  Listener listener_;
  std::atomic<int> callers_ = 0;
  std::thread thread_;
};

}  // namespace pliant::net
