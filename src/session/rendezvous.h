// How processes that a launcher has started become a job: rank 0 leaves a note (rendezvous_note.h) and answers at a
// port, the others find it and say who and where they are, and all get the job's first view.
//
//   rank 0                                            the others
//   note: endpoint, secret                      ->
//                                               <-    handshake (net/handshake.h), Join
//   Answer: you are awaited no more             ->
//   once all are there: ViewNotice, or Refusal  ->
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "base/system.h"
#include "collective/roads.h"
#include "membership/view.h"
#include "session/launch.h"

namespace pliant::session {

struct MeetOptions {
  std::string dir;               ///< that all processes see
  std::string interface_name{};  ///< to be reached at; empty: the address of the host's name, else loopback
  /// Rank 0 waits so long for all, the others for rank 0.
  std::chrono::milliseconds patience{60'000};
  std::uint64_t seed = 42;  ///< rank 0's counts
  std::uint8_t cpu_level = 0;
  std::string build{};
  std::string host = host_identity();  ///< equal on processes that share memory
};

/// What it takes to be a member: see Runtime::form.
struct Meeting {
  membership::View view;
  Fd listener;
  std::optional<collective::HostsOptions> hosts;  ///< of a job on several
};

/// Waits for all processes of the launch. All get the same view, in which ids are ranks, or none of them gets one: of a
/// process that never comes, of builds or CPU levels that differ, rank 0 tells those who are there.
/// Blocks, on this thread; signals do what they always do.
Result<Meeting> meet(const Launch& launch, const MeetOptions& options);

}  // namespace pliant::session
