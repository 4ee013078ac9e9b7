// What a coordinator knows of each worker, and of the agent of each host.
#pragma once

#include <pliant/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "wire/messages.h"

namespace pliant::membership {

/// A connection's number, as the caller counts them, from 1.
using Link = std::uint64_t;

/// Whether a worker is to go.
enum class Going {
  no,
  replaced,  // by another one, as soon as there is one
  surplus,   // it has waited for long enough
};

struct WorkerFile {
  Link link = 0;  // 0: not connected
  wire::Member self;
  std::string host;              // whose agent started it
  std::uint64_t view = 0;        // the epoch of the newest view that it has reported
  std::uint64_t knows = 0;       // the epoch of the newest view that it knew when it asked to be taken in
  wire::LastView last_view;      // that it was in when it ended
  std::uint64_t trained_in = 0;  // the epoch of the newest view in which it has reported a step
  std::int32_t process = 0;      // as its agent started it; its end is proof only if it is the one that joined
  std::string layout;
  bool named = false;                  // by its agent that is there now
  bool joined = false;                 // at least once
  bool ready = false;                  // to be taken in
  bool served = false;                 // was a member
  bool invited = false;                // was in a plan: may have become a member
  bool answered = false;               // has said which view it knows, since it was asked for that
  bool goodbye = false;                // said so
  Outcome outcome = Outcome::running;  // of its loop, by its own word
  std::string words;                   // how its process ended
  bool ended = false;
  bool counted = false;  // its end has had its consequences
  bool left = false;     // it ended in good order, and wanted is still to be lowered
  bool told = false;     // that the job is over, or that it is not needed any more
  Going going = Going::no;
  Nanos since{0};            // when it was asked for
  Nanos unreached_until{0};  // a member could not reach it: until then the job grows without it
};

/// Of the members' shared state.
struct SharedLayout {
  std::string text;  // empty: not known
  std::uint64_t told_by = 0;
};

/// What agents are told of the job.
struct AgentNews {
  std::uint64_t view = 0;
  std::uint32_t wanted = 0, spare = 0;
  std::vector<wire::Headcount> headcount{};
  bool operator==(const AgentNews&) const = default;
};

/// The agent of a host.
struct AgentFile {
  Link link = 0;  // 0: it is gone
  std::uint64_t order = 0;
  std::uint32_t slots = 0;
  bool complete = false;  // it has named all its workers
  bool told_over = false;
  std::string kind{};
  int failures = 0;              // soon after the start, in a row
  std::vector<Nanos> cooling{};  // until when: one slot each
  std::optional<AgentNews> knows{};
};

}  // namespace pliant::membership
