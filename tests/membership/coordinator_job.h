// A job as its coordinator sees it, for tests of the machine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "membership/coordinator.h"

namespace pliant::membership {

inline constexpr Link kAgent = 1000;
using Ids = std::vector<std::uint64_t>;

inline Ids ids_of(const std::vector<wire::Member>& members) {
  Ids ids;
  for (const auto& member : members) ids.push_back(member.id);
  return ids;
}

/// A job as its coordinator sees it. Worker K speaks over link 10 + K.
class CoordinatorTest : public ::testing::Test {
 protected:
  static Link link_of(std::uint64_t id) { return 10 + id; }
  static wire::Join join_of(std::uint64_t id) {
    return {"job", id, static_cast<int>(100 + id), "@w" + std::to_string(id), 2, "0.1", "", {}, 0};
  }
  static View view_of(std::uint64_t term, std::uint64_t epoch, const Ids& ids) {
    View view;
    view.term = term;
    view.epoch = epoch;
    view.seed = 42;
    for (auto id : ids) view.members.push_back({id, static_cast<int>(100 + id), "@w" + std::to_string(id)});
    return view;
  }

  void make(CoordinatorOptions options, const std::optional<Memory>& memory = {}) {
    options.job = "job";
    options.seed = 42;
    machine_.emplace(options, memory);
  }
  /// With an agent that has no workers yet.
  void make_with_agent(CoordinatorOptions options) {
    make(options);
    hello();
    hello();
  }
  /// A job with the view 1/1 of workers 0 … n-1, all started by the agent.
  void make_running(CoordinatorOptions options) {
    make_with_agent(options);
    auto n = options.start ? options.start : options.wanted;
    for (std::uint64_t id = 0; id < options.wanted; ++id) say(kAgent, wire::Started{id, static_cast<int>(100 + id)});
    for (std::uint64_t id = 0; id < n; ++id) join(id);
    ASSERT_TRUE(machine_->formed());
  }
  void hello() { say(kAgent, wire::AgentHello{"job", "", wire::kMaxMembers}); }

  void say(Link link, const wire::Message& message) { out_ = machine_->on_message(link, message); }
  void join(std::uint64_t id) { join(join_of(id)); }
  void join(const wire::Join& request) { out_ = machine_->on_join(link_of(request.id), request); }
  void join_ready(std::uint64_t id, const std::string& layout = "w[3]") {
    join(id);
    say(link_of(id), wire::Ready{layout});
  }
  void adopt(const View& view, std::uint64_t by) { say(link_of(by), wire::Adopted{notice_of(view), 5}); }
  void adopt_plan(std::uint64_t by) { adopt(view_from(plan().view).or_throw(), by); }
  void end(std::uint64_t id, bool good) {
    say(kAgent, wire::Ended{id, static_cast<std::uint8_t>(good), good ? "exit code 0" : "killed by signal 9"});
  }

  /// What the last event sent to a link, by kind.
  template <class T>
  std::vector<T> sent(Link link) const {
    std::vector<T> found;
    for (const auto& letter : out_)
      if (letter.to == link)
        if (const auto* message = std::get_if<T>(&letter.message)) found.push_back(*message);
    return found;
  }
  template <class T>
  std::vector<T> sent_to_worker(std::uint64_t id) const {
    return sent<T>(link_of(id));
  }
  template <class T>
  Ids workers_sent() const {
    Ids ids;
    for (const auto& letter : out_)
      if (std::holds_alternative<T>(letter.message) && letter.to != kAgent) ids.push_back(letter.to - 10);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::string refusal(std::uint64_t id) const {
    auto all = sent_to_worker<wire::Refusal>(id);
    return all.empty() ? "" : all[0].reason;
  }
  Ids started() const {
    Ids ids;
    for (const auto& start : sent<wire::Start>(kAgent)) ids.push_back(start.id);
    return ids;
  }
  wire::Plan plan() const {
    for (const auto& letter : out_)
      if (const auto* found = std::get_if<wire::Plan>(&letter.message)) return *found;
    return {};
  }
  Ids planned() const { return ids_of(plan().view.members); }
  wire::Answer resize(std::uint32_t workers) {
    say(77, wire::Resize{workers});
    return sent<wire::Answer>(77).at(0);
  }
  wire::JobState state() const { return sent<wire::JobState>(kAgent).at(0); }

  std::optional<Coordinator> machine_;
  Letters out_;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace pliant::membership
