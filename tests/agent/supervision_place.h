// A supervision whose driver keeps what it was told to do.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/supervision.h"
#include "base/clock.h"

namespace pliant::agent {

using namespace std::chrono_literals;
using Phase = Supervision::Phase;

inline constexpr Ending kWell{};
inline constexpr Ending kKilled{0, SIGKILL};
inline constexpr Ending kTerminated{0, SIGTERM};
inline constexpr Ending kUnknown{0, 0, true};

/// It keeps what was done; the coordinator is in reach unless a test says otherwise.
class PlayedDriver final : public Driver {
 public:
  Result<pid_t> start(std::uint64_t id) override { return static_cast<pid_t>(100 + id); }
  void signal(std::uint64_t id, int number) override { signals[id].push_back(number); }
  bool send(const wire::Message& message) override {
    if (missed) return false;
    letters.push_back(message);
    return true;
  }
  std::optional<Nanos> missed_for() const override { return missed; }
  void drain() override {}
  session::WorkerNote note_of(std::uint64_t id) const override {
    auto at = notes.find(id);
    return at == notes.end() ? session::WorkerNote{} : at->second;
  }
  void note_told(std::uint64_t id) override { told.push_back(id); }
  void forget(std::uint64_t id) override { forgotten.push_back(id); }
  std::string last_words(std::uint64_t /*id*/) override { return ""; }
  void say(const std::string& lines) override { said += lines; }
  void note(const std::string& /*what*/, std::uint64_t /*worker*/, const std::string& /*text*/) override {}

  template <class T>
  std::vector<T> sent() const {
    std::vector<T> found;
    for (const auto& letter : letters)
      if (const auto* message = std::get_if<T>(&letter)) found.push_back(*message);
    return found;
  }

  std::optional<Nanos> missed;
  std::vector<wire::Message> letters;
  std::map<std::uint64_t, std::vector<int>> signals;
  std::map<std::uint64_t, session::WorkerNote> notes;
  std::vector<std::uint64_t> told, forgotten;
  std::string said;
};

class Supervisions : public testing::Test {
 protected:
  void make(SupervisionOptions options = {}) {
    options.name = options.job = "job";
    options.grace = 10s;
    driver_ = {};
    supervision_.emplace(clock_, options, driver_);
  }
  void hear(const wire::Message& message) { supervision_->on_message(message); }
  /// A job of these workers, all of this host, and the view that the coordinator has told of.
  void make_running(const std::vector<std::uint64_t>& workers, const std::vector<std::uint64_t>& view) {
    SupervisionOptions options;
    options.wanted = static_cast<std::uint32_t>(workers.size());
    make(options);
    supervision_->on_slots(8);
    supervision_->on_connected();
    for (auto id : workers) hear(wire::Start{id});
    hear_view(view);
    driver_.letters.clear();
  }
  void hear_view(const std::vector<std::uint64_t>& members) {
    wire::JobState state;
    state.view.term = state.view.epoch = 1;
    for (auto id : members) state.view.members.push_back({id, static_cast<int>(100 + id), "@w"});
    hear(state);
  }
  void hear_over(Outcome outcome) { hear(wire::Over{static_cast<std::uint8_t>(outcome)}); }
  void finish(std::uint64_t id) { driver_.notes[id] = {Outcome::finished, 1, true}; }
  void ends(std::uint64_t id, const Ending& ending) { supervision_->on_ended({{id, ending}}); }
  /// The coordinator is gone for good, and everybody has ended.
  void run_out_of_patience() {
    driver_.missed = 1h;
    clock_.advance(10s);
    supervision_->on_time();
    ASSERT_EQ(supervision_->phase(), Phase::settling);
    ASSERT_TRUE(supervision_->judged());
  }
  Outcome outcome() const { return supervision_->verdict().outcome(); }
  int exit_status() const { return supervision_->verdict().exit_status(); }

  ManualClock clock_;
  PlayedDriver driver_;
  std::optional<Supervision> supervision_;
};

}  // namespace pliant::agent
