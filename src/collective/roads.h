// The way to workers on other hosts: finds them, keeps several lanes to each (streams.h), carries letters on the first,
// and notices when one is silent. What is lost without proof of death is called again and again, because it may only
// have been out of reach. Whoever breaks a rule of what may be sent is named in the log, lost, and never let in again.
// Threads: everything on the loop's, except streams().
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/peer_limits.h"
#include "collective/streams.h"
#include "net/gate.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::collective {

/// What a worker needs to be reached from other hosts.
struct HostsOptions {
  net::Secret secret;
  Fd listener;          ///< TCP, at the member's endpoint
  std::string address;  ///< to call from; empty: the kernel's choice
  /// A peer that is silent for so long is lost, or for three times as long as it has been silent before: on a crowded
  /// machine heartbeats come late.
  std::chrono::milliseconds silence{500};
  /// Nobody else can reach this network: bulk data goes as it is. Messages are sealed all the same.
  bool trusted = false;
  /// Workers that call although nobody has told of them yet, and those that have broken rules: more are refused.
  std::size_t most_unexpected = wire::kMaxMembers;
};

/// Called on the loop's thread.
struct RoadEvents {
  std::function<void(std::uint64_t id)> on_connected;
  std::function<void(std::uint64_t from, wire::Message message)> on_letter;
  std::function<void(std::uint64_t id, const std::string& how)> on_lost;
};

class Roads final : public FrameSink {
 public:
  static constexpr std::uint32_t kLanes = 3;
  static constexpr std::chrono::milliseconds kBeat{50};
  static constexpr std::chrono::milliseconds kRetry{100};
  static constexpr int kAbsence = 2;  ///< who is expected and not reached for so many times the silence is lost too

  Roads(net::Loop& loop, std::string job, std::uint64_t self, HostsOptions options, RoadEvents events);
  ~Roads() override;
  Roads(const Roads&) = delete;
  Roads& operator=(const Roads&) = delete;

  /// Sees to it that there is a connection, now and whenever it is lost: made from here to lower ids, awaited from
  /// higher ones.
  void expect(const wire::Member& member);
  /// It is dead or of no interest any more.
  void forget(std::uint64_t id);
  /// The same, and it cannot call any more: nothing is kept of it.
  void erase(std::uint64_t id);
  /// It has broken a rule, and what it did is `what`: one line in the log, and it is lost, now and for good.
  void leave_behind(std::uint64_t id, const std::string& what);
  /// Connections are made in this view from now on.
  void in_view(std::uint64_t hash) { view_ = hash; }
  void send(std::uint64_t id, const wire::Message& message);
  std::uint64_t refused() const { return gate_->refused(); }
  Streams& streams() { return *streams_; }

  Result<std::byte*> place_for(std::uint64_t from, const FrameHeader& header,
                               std::vector<std::byte>& lane_buffer) override;
  Status on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) override;

 private:
  struct Road {
    wire::Member member;  // without an endpoint: nobody has told of it
    bool calls = false;   // from here
    std::uint32_t attempt = 0;
    std::map<std::uint32_t, std::unique_ptr<net::Call>> calling;  // by lane
    std::set<std::uint32_t> lanes;                                // that stand
    bool connected = false;
    bool forgotten = false;
    Nanos missed_since{0};  // it is expected, and not there; 0: nobody waits, or that was told
    Nanos heard{0};
    Nanos longest{0};  // of the silences that have ended, slowly forgotten
    Nanos call_at{0};
  };
  std::string objection_to(const net::Introduction& who) const;
  net::Protection protection_of(std::uint32_t lane) const;
  bool is_crowded() const;
  void admit(net::Guest guest);
  void call(Road& road);
  void add_lane(Road& road, std::uint32_t lane, net::Guest guest);
  void lose(std::uint64_t id, const std::string& how);
  void tick();

  net::Loop& loop_;
  const std::string job_;
  const std::uint64_t self_;
  HostsOptions options_;
  const RoadEvents events_;
  SteadyClock clock_;
  Nanos ticked_{0};
  std::map<std::uint64_t, Road> roads_;
  std::uint64_t view_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared: with what was posted and not run yet
  PeerLimits limits_;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<net::Gate> gate_;
  net::Loop::Timer timer_;
};

}  // namespace pliant::collective
