// A simulated process: a program on a fiber of its own, which may be killed, stopped and continued at any moment at
// which it waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/condition.h"
#include "session/platform.h"
#include "session/worker_note.h"
#include "simulation/coverage.h"
#include "simulation/fiber.h"
#include "simulation/scheduler.h"

namespace pliant::sim {

class World;

/// Thrown inside a process that was killed, so that what it holds is destroyed. Nothing that it does meanwhile is seen
/// by anybody.
struct Killed {};
/// Thrown by a program that was told to: it ends badly, and that is no fault of the session's.
struct ThrownOnOrder {};

class Process {
 public:
  using Program = std::function<void(Process& self)>;
  Process(World& world, std::uint64_t id, std::string host, int pid);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// It takes `delay` to load. `ended(good)` is called when the program has returned or thrown.
  void start(Program program, Nanos delay, std::function<void(bool good)> ended);

  World& world() { return world_; }
  std::uint64_t id() const { return id_; }
  const std::string& host() const { return host_; }
  int pid() const { return pid_; }
  bool alive() const { return !dead_; }
  bool stopped() const { return stopped_; }
  /// Notice to leave (SIGTERM).
  void notify() { notified_ = true; }
  bool notified() const { return notified_; }
  /// The view that it acts in; outlives it.
  void note_view(wire::LastView view) {
    if (!dead_) last_view_ = view;
  }
  wire::LastView last_view() const { return last_view_; }
  /// The epoch of the newest view that it knows to be in force, whether it acts in it yet or not.
  void note_agreed(std::uint64_t epoch) { agreed_view_ = std::max(agreed_view_, epoch); }
  std::uint64_t agreed_view() const { return std::max(agreed_view_, last_view_.epoch); }
  /// It has asked to be taken in, and has no state until it begins a step.
  void note_blank(bool blank) { blank_ = blank; }
  bool blank() const { return blank_; }
  /// How its loop ended, as it left in writing.
  void note_outcome(Outcome outcome) {
    if (!dead_) outcome_ = outcome;
  }
  void note_closed() { closed_ = closed_ || !dead_; }
  session::WorkerNote note() const { return {outcome_, last_view_, closed_}; }
  /// Hears which rows of its session's tables are taken.
  StateWatch& watch() { return watch_; }

  /// kill -9. Nothing it does from here on is seen by anybody.
  void kill();
  /// SIGSTOP and SIGCONT: what should happen in it waits.
  void stop() { stopped_ = true; }
  void go_on();
  /// Dies when it breathes for the n-th time from now on.
  void doom(int breaths) { doom_ = breaths; }

  // ---- inside its program ----
  /// Until wake().
  void park();
  void sleep(Nanos span);
  /// A moment between two things that others can see: anything may happen here.
  void breathe();

  // ---- from outside ----
  void wake();
  /// Something that happens in this process: not if it has died, and later if it is stopped.
  void later(Nanos delay, std::function<void()> action);

 private:
  void run();

  World& world_;
  const std::uint64_t id_;
  const std::string host_;
  const int pid_;
  StateWatch watch_;
  std::unique_ptr<session::Platform> platform_;
  std::unique_ptr<Fiber> fiber_;
  std::function<void(bool good)> ended_;
  bool dead_ = false, stopped_ = false, notified_ = false, blank_ = false, closed_ = false;
  bool parked_ = false, waking_ = false, running_ = false;
  int doom_ = -1;
  Outcome outcome_ = Outcome::running;
  wire::LastView last_view_;
  std::uint64_t agreed_view_ = 0;
  std::vector<std::function<void()>> held_back_;  // while it is stopped
};

}  // namespace pliant::sim
