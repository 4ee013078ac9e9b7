// Every message that crosses a socket, and its bounded codec. docs/bytes.md is the page for these bytes.
//
// A message is one packet: u32 magic, u16 version, u16 kind, then the fields in the order of the struct.
// Decoding never allocates more than the packet holds, and never trusts a length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pliant::wire {

inline constexpr std::uint32_t kMagic = 0x544e4c50;  // "PLNT"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kMaxPacket = 64 * 1024;
inline constexpr std::size_t kMaxName = 120;     ///< names of jobs, regions, channels and logs
inline constexpr std::size_t kMaxText = 1024;    ///< reasons
inline constexpr std::size_t kMaxMembers = 512;  ///< members in a view

/// One worker of a view, as everybody sees it.
struct Member {
  std::uint64_t id = 0;  ///< never reused within a job
  std::int32_t pid = 0;
  std::string address;  ///< where its peers connect; abstract Unix socket name
  bool operator==(const Member&) const = default;
};

/// worker -> coordinator: let me in.
struct Join {
  std::string job;
  std::uint64_t id = 0;
  std::int32_t pid = 0;
  std::string address;
  std::uint8_t cpu_level = 0;
  std::string build;
};

/// coordinator -> worker: the membership to adopt. Members are in rank order.
struct ViewNotice {
  std::uint64_t term = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
  std::vector<Member> members;
};

/// coordinator -> worker, or peer -> peer: no, and why.
struct Refusal {
  std::string reason;
};

/// worker -> coordinator, a few times a second and never waited for: what the status line shows.
struct Progress {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 0;       ///< 0: not known
  std::uint64_t steps = 0;        ///< expected in all; 0: not known
  std::uint64_t samples = 0;      ///< consumed by the whole job so far
  double samples_per_second = 0;  ///< of the whole job
  double loss = 0;                ///< averaged over workers; NaN if nobody logs one
  std::string text;               ///< further averages, ready to print
};

/// worker -> coordinator: a peer is gone, or this worker fails; which rank is to blame and why.
struct Complaint {
  std::uint32_t rank = 0;
  std::string reason;
};

/// peer -> peer, first message in both directions; carries the sender's control segment.
struct PeerHello {
  std::string job;
  std::uint64_t view_hash = 0;
  std::uint64_t id = 0;
};

/// peer -> peer: a registered region; carries two segments, its input and its part of the results.
struct RegionNotice {
  std::string name;
  std::uint32_t region = 0;  ///< the sender's number for it
  std::uint64_t bytes = 0;
  std::uint64_t stripe = 0;
  std::uint32_t results = 0;
};

/// peer -> peer: leaving in good order; what follows is not a crash.
struct Bye {};

using Message = std::variant<Join, ViewNotice, Refusal, Progress, Complaint, PeerHello, RegionNotice, Bye>;

std::vector<std::uint8_t> encode(const Message& message);
/// Code::protocol with one line that says what is wrong.
Result<Message> decode(std::span<const std::uint8_t> packet);

}  // namespace pliant::wire
