// The coordinator's side of a job's start: gathers the workers of a fixed membership and gives all of them the view.
//
// A state machine over injected input: it owns no socket and no clock. Each event returns what to send to whom.
//
//   state      event                 to         action
//   gathering  join of a new worker  gathering  remember it; refuse it if it does not fit the job
//   gathering  the last one joins    running    send the view to all
//   any        join, not expected    same       refuse, with the reason
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "membership/view.h"
#include "wire/messages.h"

namespace pliant::membership {

struct CoordinatorOptions {
  std::string job;
  int workers = 1;  ///< ids 0 … workers-1 are expected
  std::uint64_t seed = 0;
};

/// Whoever a message goes to: the connection's number, as the caller counts them.
using Link = std::uint64_t;
struct Outgoing {
  Link to = 0;
  std::variant<wire::ViewNotice, wire::Refusal> message;
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  /// A worker asks to join over `link`.
  std::vector<Outgoing> on_join(Link link, const wire::Join& join);
  /// The connection ended before the view was out: the worker may come again (or never).
  void on_closed(Link link);

  bool running() const { return running_; }
  /// Ids that have not joined yet.
  std::vector<std::uint64_t> missing() const;
  const View& view() const { return view_; }

 private:
  struct Seat {
    bool taken = false;
    Link link = 0;
    wire::Join join;
  };
  std::string objection_to(const wire::Join& join) const;

  CoordinatorOptions options_;
  std::vector<Seat> seats_;
  bool running_ = false;
  View view_;
};

}  // namespace pliant::membership
