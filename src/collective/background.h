// A thread that works while nobody else does, and the bell that it sleeps on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "net/futex.h"

namespace pliant::collective {

class Background {
 public:
  Background() = default;
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Calls `turn` again and again until stop(); it sleeps in sleep() when there is nothing to do.
  template <class Turn>
  void start(Turn turn) {
    thread_ = std::thread([this, turn = std::move(turn)] {
      while (!stopping_.load(std::memory_order_acquire)) turn();
    });
  }
  void stop() {
    stopping_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
  }
  void wake() {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeps_.load(std::memory_order_seq_cst)) net::futex_wake(&bell_);
  }
  /// It looks after the work: it is awake, or sleeps on everybody's bells, and need not be woken for what rings those.
  bool watches() const { return watches_.load(std::memory_order_seq_cst); }

  // For `turn`.

  /// The bell as it is now: it will have changed if somebody rings until sleep().
  net::FutexWord listen() const { return {&bell_, bell_.load(std::memory_order_seq_cst)}; }
  /// `needed` says whether the work is this thread's. It is asked while the thread does not watch: whoever brings work
  /// that it misses wakes the thread.
  template <class Needed>
  bool take_over(const Needed& needed) {
    watches_.store(false, std::memory_order_seq_cst);
    bool ours = needed();
    watches_.store(ours, std::memory_order_seq_cst);
    return ours;
  }
  /// `wait` sleeps on what listen() returned, perhaps among others.
  template <class Wait>
  void sleep(const Wait& wait) {
    sleeps_.store(true, std::memory_order_seq_cst);
    wait();
    sleeps_.store(false, std::memory_order_seq_cst);
  }

 private:
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<bool> sleeps_{false};
  std::atomic<bool> watches_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace pliant::collective
