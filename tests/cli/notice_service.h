// A metadata service on the loopback that does what a test tells it to, and who asks it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/pliant/notice_watch.h"
#include "net/loop_thread.h"
#include "net/scripted_server.h"

namespace pliant::cli {

inline constexpr NoticePace kQuick{std::chrono::milliseconds(1), std::chrono::milliseconds(4),
                                   std::chrono::milliseconds(net::kHangGuard)};
inline const WallTime kNow = parse_notice_time("2017-09-18T08:20:00Z").value();

/// What it does to one caller.
using Turn = net::ScriptedServer::Script;

inline std::string answer(const std::string& status, const std::string& body = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline std::string ok(const std::string& body) { return answer("200 OK", body); }

inline const std::string kNothing = answer("404 Not Found");
inline const std::string kNotice = ok(R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})");

/// Takes its turns, and then stays with the last one. Remembers what it was asked.
class Service {
 public:
  explicit Service(std::vector<Turn> turns)
      : turns_(std::move(turns)), server_([this](const Fd& socket) { serve(socket); }) {}
  explicit Service(const std::vector<std::string>& answers) : Service(turns_of(answers)) {}

  NoticeUrl url(const std::string& path = "/notice") const {
    return {server_.endpoint().address, server_.endpoint().port, path};
  }
  int callers() const { return server_.callers(); }
  std::vector<std::string> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }
  /// "GET /path" of each.
  std::vector<std::string> questions() {
    std::vector<std::string> all;
    for (const auto& request : heard()) all.push_back(request.substr(0, request.find(" HTTP/")));
    return all;
  }

 private:
  static std::vector<Turn> turns_of(const std::vector<std::string>& answers) {
    std::vector<Turn> turns;
    for (const auto& text : answers) turns.emplace_back([text](const Fd& socket) { net::say(socket, text); });
    return turns;
  }
  void serve(const Fd& socket) {
    auto request = net::hear_request(socket);
    {
      std::lock_guard lock(mutex_);
      heard_.push_back(request);
    }
    turns_[std::min(turn_++, turns_.size() - 1)](socket);
  }

  std::vector<Turn> turns_;
  std::size_t turn_ = 0;
  std::mutex mutex_;
  std::vector<std::string> heard_;  // guarded by mutex_
  net::ScriptedServer server_;
};

/// A watch on a loop of its own, and what it said; its callbacks may destroy it first.
class Watcher {
 public:
  explicit Watcher(const NoticeUrl& url, NoticePace pace = kQuick, bool destroys_it = false) {
    place_.do_there([&] {
      watch_ = std::make_unique<NoticeWatch>(
          place_.loop(), url,
          [this, destroys_it](const SpotNotice& notice) {
            if (destroys_it) watch_.reset();
            note(notices_, notice);
          },
          [this, destroys_it](const std::string& line) {
            if (destroys_it) watch_.reset();
            note(troubles_, line);
          },
          pace, [] { return kNow; });
    });
  }
  ~Watcher() { destroy(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void destroy() {
    place_.do_there([this] { watch_.reset(); });
  }
  /// Time for what should not happen.
  void linger() {
    for (int i = 0; i < 20; ++i) place_.do_there([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  }
  /// Waits for the one.
  SpotNotice notice() {
    wait([this] { return !notices_.empty(); });
    std::lock_guard lock(mutex_);
    EXPECT_EQ(notices_.size(), 1U);
    return notices_.empty() ? SpotNotice{} : notices_[0];
  }
  /// Waits for the first.
  std::string trouble() {
    wait([this] { return !troubles_.empty(); });
    std::lock_guard lock(mutex_);
    return troubles_.empty() ? "" : troubles_[0];
  }
  std::vector<std::string> troubles() {
    std::lock_guard lock(mutex_);
    return troubles_;
  }
  bool said_anything() {
    std::lock_guard lock(mutex_);
    return !notices_.empty() || !troubles_.empty();
  }

 private:
  template <class T>
  void note(std::vector<T>& list, const T& item) {
    std::lock_guard lock(mutex_);
    list.push_back(item);
    changed_.notify_all();
  }
  template <class Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::milliseconds(net::kHangGuard), condition)) << "nothing happens";
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SpotNotice> notices_;    // guarded by mutex_
  std::vector<std::string> troubles_;  // guarded by mutex_
  std::unique_ptr<NoticeWatch> watch_;
  net::LoopThread place_;
};

}  // namespace pliant::cli
