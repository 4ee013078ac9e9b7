// What a coordinator hears, learns and says, as events in the job's records:
//
//   event    worker  text
//   begun            its process, and whether it took up the job from an earlier one's note
//   agent            the process of the agent that has come
//   joined   yes     its process, and the view it was in
//   refused  maybe   whose connection, and why
//   view             epoch, term and members of a view that was formed or reported
//   plan             the same of a view that the members are asked for
//   start    yes     the agent is asked for it
//   resize   maybe   how many were asked for
//   answer   maybe   to that
//   loop     yes     how its loop ended, and after how many steps
//   goodbye  yes     its session ends, and how
//   gone     yes     its process has ended, by the kernel's word
//   ended    yes     how, by the agent's word
//   last view yes    the epoch of the view that it acted in last, by what it left in writing
//   rescue           the checkpoint that the job goes on from, or why it cannot
//   over             nobody of the view is left to train: finished, stopped or failed
//   ends             this coordinator, and why
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "agent/event_log.h"
#include "membership/coordinator.h"
#include "wire/messages.h"

namespace pliant::agent {

class Chronicle {
 public:
  /// `log` is the coordinator's.
  explicit Chronicle(EventLog log) : log_(std::move(log)) {}

  void begun(pid_t pid, const std::optional<membership::Memory>& memory);
  void ends(const std::string& why) { log_.note("ends", why); }

  void agent_came(pid_t pid, const std::string& host);
  void joined(const wire::Join& join);
  void refused(std::optional<std::uint64_t> worker, pid_t pid, const std::string& reason);
  /// From a worker, or from the agent or somebody else.
  void heard(std::optional<std::uint64_t> worker, bool from_agent, const wire::Message& message);
  /// All who held the job's state are gone.
  void looked_for_checkpoint(const Result<std::uint64_t>& newest);
  void gone(std::uint64_t worker) { log_.note("gone", worker, ""); }
  /// Before it is sent, to a worker or to somebody else.
  void says(std::optional<std::uint64_t> worker, const wire::Message& message);
  /// After every event. Only what is new is written.
  void look_at(const membership::Coordinator& coordinator);

 private:
  void note(const std::string& what, std::optional<std::uint64_t> worker, const std::string& text);

  EventLog log_;
  std::uint64_t view_ = 0;  // hash of the last one written
  std::uint64_t plan_ = 0;  // the same
  bool over_ = false;
  std::uint64_t refusals_ = 0;
};

}  // namespace pliant::agent
