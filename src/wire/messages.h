// Every message that crosses a socket, and its bounded codec. docs/bytes.md is the page for these bytes.
//
// A message is one packet: u32 magic, u16 version, u16 kind, then the fields in the order of the struct.
// Decoding never allocates more than the packet holds, and never trusts a length.
#pragma once

#include <pliant/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pliant::wire {

inline constexpr std::uint32_t kMagic = 0x544e4c50;  // "PLNT"
inline constexpr std::uint16_t kVersion = 8;
inline constexpr std::size_t kMaxPacket = 264 * 1024;
inline constexpr std::size_t kMaxName = 120;     ///< names of jobs, regions, channels and logs
inline constexpr std::size_t kMaxAddress = 64;   ///< of a member: its socket's name
inline constexpr std::size_t kMaxHost = 96;      ///< of a member: base's host_identity()
inline constexpr std::size_t kMaxEndpoint = 64;  ///< of a member: an IP address and a port
inline constexpr std::size_t kMaxText = 1024;    ///< reasons
inline constexpr std::size_t kMaxMembers = 512;  ///< members in a view
inline constexpr std::size_t kMaxCharter = 96 * 1024;
inline constexpr std::size_t kMaxKinds = 32;  ///< price classes in a job
// Whatever a job's hosts are called, a message with two full views (Promise) fits into a packet.
static_assert(2 * kMaxMembers * (24 + kMaxAddress + kMaxHost + kMaxEndpoint + sizeof(std::uint64_t)) + 1024 <=
              kMaxPacket);

/// One worker of a view, as everybody sees it.
struct Member {
  std::uint64_t id = 0;  ///< never reused within a job
  std::int32_t pid = 0;
  std::string address;     ///< where its peers on the same host connect; abstract Unix socket name
  std::string host{};      ///< equal on members that share memory
  std::string endpoint{};  ///< where its peers on other hosts connect; empty in a job of one host
  bool operator==(const Member&) const = default;
};

/// A membership. Members are in rank order. Epoch 0: none.
struct ViewNotice {
  std::uint64_t term = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
  std::uint64_t planned = 0;
  std::vector<Member> members;
  std::vector<std::uint64_t> newcomers{};  ///< ids of members that have no vote yet, ascending
  std::uint32_t restarts = 0;              ///< how often the job has begun again from a checkpoint
  std::uint64_t resume_step = 0;           ///< of the checkpoint that it began from last, if ever
};

/// The view that a worker acted in last, by what it noted before it did. Of two notes the greater one says more.
struct LastView {
  std::uint64_t epoch = 0;  ///< 0: not known, or in none
  /// 1: it has not voted on what follows that view: it has promised no recovery, and stored no successor. 0: not known.
  std::uint8_t unvoted = 0;

  constexpr LastView(std::uint64_t view = 0, bool has_not_voted = false) : epoch(view), unvoted(has_not_voted) {}
  bool operator==(const LastView&) const = default;
  bool operator<(const LastView& other) const {
    return epoch < other.epoch || (epoch == other.epoch && unvoted < other.unvoted);
  }
};

// ---- workers and their coordinator ----

/// worker -> coordinator, first message of every connection: who I am and where I am, so that a coordinator that has
/// just begun learns the job from its workers.
struct Join {
  std::string job;
  std::uint64_t id = 0;
  std::int32_t pid = 0;
  std::string address;
  std::uint8_t cpu_level = 0;
  std::string build;
  std::string layout;  ///< of the shared state, in words; empty until the worker's loop begins
  ViewNotice view;     ///< the newest that this worker adopted
  std::uint64_t step = 0;
  std::string host{};       ///< see Member
  std::string endpoint{};   ///< see Member
  std::uint64_t knows = 0;  ///< the epoch of the newest view that this worker knows of; without `view`: as Ready::view
};

/// worker -> coordinator: my loop begins (or I was detached): take me in.
struct Ready {
  std::string layout;
  std::uint64_t view = 0;  ///< the epoch of the newest view that I know of: I am in none up to that
};

/// member -> coordinator: my loop begins, and newcomers must share the same.
struct Shares {
  std::string layout;
};

/// coordinator -> members: after a step that all of you close with this plan in hand, go on as `view`.
/// Void once a member has adopted anything but the view with hash `base`.
struct Plan {
  std::uint64_t term = 0;
  std::uint64_t base = 0;
  ViewNotice view;
};

/// worker -> coordinator: I adopted this, and these are the steps done.
struct Adopted {
  ViewNotice view;
  std::uint64_t step = 0;
};

/// coordinator -> a worker outside the view: the job is over, or goes on without it: do not wait. To an agent: how the
/// job ended, and why, if it failed.
struct Over {
  std::uint8_t outcome = static_cast<std::uint8_t>(Outcome::finished);
  std::string reason{};
  bool operator==(const Over&) const = default;
};

/// coordinator -> worker, or peer -> peer: no, and why.
struct Refusal {
  std::string reason;
};

/// worker -> coordinator, a few times a second and never waited for: what the status line shows.
struct Progress {
  std::uint64_t step = 0;
  std::uint64_t view = 0;     ///< that made it
  std::uint32_t workers = 0;  ///< in that view
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 0;       ///< 0: not known
  std::uint64_t steps = 0;        ///< expected in all; 0: not known
  std::uint64_t samples = 0;      ///< consumed by the whole job so far
  double samples_per_second = 0;  ///< of the whole job
  double loss = 0;                ///< averaged over workers; NaN if nobody logs one
  std::string text;               ///< further averages, ready to print
};

/// anyone -> coordinator: so many workers, please. Answered.
struct Resize {
  std::uint32_t workers = 0;
  std::uint8_t settled = 0;  ///< 1: it will stay so; whoever is not needed then need not wait
};
/// worker -> coordinator: this one holds the others up. Somebody else in its place, please, once there is somebody.
struct Replace {
  std::uint64_t id = 0;
};
struct Answer {
  std::uint8_t ok = 0;
  std::string text;
};

// ---- the coordinator and the agent that starts and watches workers ----

/// agent -> coordinator, first message; and later if it has more or fewer slots than it had.
struct AgentHello {
  std::string job;
  std::string host{};       ///< where it starts workers; there is one agent per host
  std::uint32_t slots = 0;  ///< how many it can have at a time; 0: it only watches, or its host is taken away
  std::string kind{};       ///< the price class of its workers: "spot"; empty: there is only one
};
/// coordinator -> an agent that comes from another host: what to start (record_text in apps/pliant/job_dir.h).
struct Charter {
  std::string text;
};
/// head -> coordinator -> agents: end your workers, after their step or at once.
struct Stop {
  std::string host{};  ///< whose; empty: everybody's
  std::uint8_t force = 0;
};
/// coordinator -> agent.
struct Start {
  std::uint64_t id = 0;
};
/// agent -> coordinator.
struct Started {
  std::uint64_t id = 0;
  std::int32_t pid = 0;
};
/// agent -> coordinator.
struct Ended {
  std::uint64_t id = 0;
  std::uint8_t good = 0;     ///< it ended by itself, with status 0
  std::string words;         ///< "exit status 3", "killed by signal 9"
  std::uint8_t taken = 0;    ///< costs nothing: its agent sent it away for want of a slot, or it was told before
  LastView view;             ///< by what it left in writing
  std::uint8_t outcome = 0;  ///< of its loop, by the same; 0: nothing
};
/// coordinator -> agent, the answer to Ended.
struct Parted {
  std::uint64_t id = 0;
  std::uint8_t goodbye = 0;  ///< it said that its loop had ended
};
/// coordinator -> an agent on another host, a few times a second: I am here.
struct Pulse {};
/// The workers of one price class, by what they do.
struct Headcount {
  std::string kind;
  std::uint32_t starting = 0, training = 0, waiting = 0;
  bool operator==(const Headcount&) const = default;
};
/// coordinator -> agent: what the job is now.
struct JobState {
  ViewNotice view;
  std::uint32_t wanted = 0;
  std::uint32_t spare = 0;             ///< workers that wait to be taken in
  std::vector<Headcount> headcount{};  ///< everybody who has to be paid
};

// ---- members among each other: agreement on a recovery view ----

/// Let me decide under this term. A claim to plan changes leaves the view in force; a claim to recover fences it.
struct Claim {
  std::uint64_t term = 0;
  std::uint8_t recover = 0;
};
/// Yes. `view` is the newest that I know to be in force; `stored` is what I have stored to follow it, if anything, and
/// may be in force without my knowing: whoever decides now must not decide otherwise.
struct Promise {
  std::uint64_t term = 0;
  ViewNotice view;
  std::uint64_t stored_under = 0;  ///< the term of the proposal; if a step ended with it, that of `view`
  ViewNotice stored;
  std::uint8_t holds = 0;  ///< 1: I have the job's state
};
/// No: I have promised `term`, and `view` is the newest that I know to be in force.
struct Decline {
  std::uint64_t term = 0;
  ViewNotice view;
};
struct Propose {
  std::uint64_t term = 0;
  ViewNotice view;
};
/// Also said unasked by a member whose step ended with a switch.
struct Stored {
  std::uint64_t term = 0;  ///< the proposal's; of a switch, that of the view that it ends
  std::uint64_t hash = 0;  ///< of the view
};
/// Enough members have stored it.
struct InForce {
  std::uint64_t term = 0;
  ViewNotice view;
};

/// On my host the kernel says that this worker's process is gone. From a member, or from the coordinator by an agent's
/// word.
struct Dead {
  std::uint64_t id = 0;
  LastView view;
};

// ---- members among each other: connections and memory ----

/// First message in both directions.
struct PeerHello {
  std::string job;
  std::uint64_t id = 0;
};

/// I have entered this view; carries the sender's control segment for it.
struct Entered {
  std::uint64_t view_hash = 0;
  ViewNotice view;
};

/// A registered region; carries two segments, its input and its part of the results.
struct RegionNotice {
  std::uint64_t view_hash = 0;
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t stripe = 0;
  std::uint32_t results = 0;
  std::uint32_t generation = 0;  ///< which one of that name in this view, from 1
};

/// The sender's session ends; what follows is not a crash. To the coordinator it says how: see Outcome.
struct Bye {
  std::uint8_t outcome = static_cast<std::uint8_t>(Outcome::finished);
  std::uint64_t step = 0;  ///< steps done
  std::uint64_t view = 0;  ///< to other workers: the epoch of the view that the sender acted in last
};

/// worker -> coordinator: my loop has ended, and how. The process goes on, and may end without a Bye.
struct LoopEnded {
  std::uint8_t outcome = static_cast<std::uint8_t>(Outcome::finished);
  std::uint64_t step = 0;  ///< steps done
};

/// member -> coordinator: I hold the plan, and for some seconds now I have not reached this newcomer of it.
struct Unreached {
  std::uint64_t id = 0;
};

using Message =
    std::variant<Join, ViewNotice, Refusal, Progress, PeerHello, RegionNotice, Bye, Ready, Plan, Adopted, Over, Resize,
                 Answer, AgentHello, Start, Started, Ended, JobState, Claim, Promise, Decline, Propose, Stored, InForce,
                 Entered, Shares, Parted, Dead, Charter, Stop, Pulse, Replace, LoopEnded, Unreached>;

/// Whether a job's end was asked for. Of two words the stronger one holds, whoever repeats them.
enum class Stopping : std::uint8_t {
  no,
  in_order,  ///< workers end after their step, or are killed after the grace time
  at_once,   ///< they are killed
};
constexpr Stopping stopping_in(const Stop& stop) { return stop.force ? Stopping::at_once : Stopping::in_order; }
/// The word for everybody.
inline Stop stop_of(Stopping how) { return {"", static_cast<std::uint8_t>(how == Stopping::at_once)}; }

/// What the byte of a message says. A value that no version has written is a failure.
constexpr Outcome outcome_in(std::uint8_t byte) {
  return byte < kOutcomes ? static_cast<Outcome>(byte) : Outcome::failed;
}

std::vector<std::uint8_t> encode(const Message& message);
/// Code::protocol with one line that says what is wrong.
Result<Message> decode(std::span<const std::uint8_t> packet);

}  // namespace pliant::wire
