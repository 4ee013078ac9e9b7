// What the simulated job is made of: randomness, samples, steps, and what its parts say to each other.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "membership/member.h"
#include "membership/settle.h"

namespace pliant::membership::sim {

using Id = std::uint64_t;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The same numbers from the same seed on every machine.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix64(seed)) {}
  std::uint64_t below(std::uint64_t bound) { return mix64(++state_) % bound; }
  bool chance(unsigned percent) { return below(100) < percent; }
  Nanos between(Nanos low, Nanos high) {
    return low + Nanos(below(static_cast<std::uint64_t>((high - low).count()) + 1));
  }

 private:
  std::uint64_t state_;
};

/// A part of the code that is done wrong on purpose, to see that the simulation notices.
enum class Mutation {
  none,
  lower_terms,    ///< promise and store under any term, and be bound by none
  minority,       ///< take every loss as proven
  no_fence,       ///< let rows of the old view complete a step of the new one
  mixed,          ///< count contributions of the old view in the new one
  forget_stored,  ///< say that a proposal is stored, and promise without telling of it
  hasty_switch,   ///< go on in a planned view before enough members are known to have it
  unconfirmed,    ///< act on a step before all are known to have it
  fickle_store,   ///< have a store that takes every view it is asked for
};

// ---- samples ----

inline constexpr std::size_t kSamples = 97;  // no multiple of any view's batch: every epoch ends with short leases
inline constexpr int kBatch = 3;
using Samples = std::bitset<kSamples>;

/// The samples of an epoch that no committed step has consumed. Replicated, and nobody is ever asked for samples: what
/// a dead member had leased was never taken out.
struct Ledger {
  std::uint64_t epoch = 0;
  Samples left = Samples().set();

  Samples lease(int rank) const;
  /// False if any of them were consumed before in this epoch.
  [[nodiscard]] bool consume(const Samples& samples);
};

// ---- steps ----

struct Entry {
  std::uint64_t step = 0;
  std::uint64_t view = 0;
  std::vector<Id> contributors;  // sorted
  Samples samples;
  bool operator==(const Entry&) const = default;
};
using Log = std::vector<std::shared_ptr<const Entry>>;

// ---- what is said ----

struct Row {
  std::uint64_t view = 0;
  std::uint64_t step = 0;
  Outlook outlook;
  bool contributes = false;
  Samples samples;
};
struct Entered {
  View view;
  Report report;
};
/// I have every row of this step.
struct Confirm {
  std::uint64_t view = 0;
  std::uint64_t step = 0;
};
struct StateCopy {
  std::uint64_t view = 0;
  Log log;
  Ledger ledger;
  std::size_t stable = 0;
};
struct Heartbeat {
  std::uint64_t epoch = 0;
};
/// The connection is closed: you are not in my view.
struct Reset {};
/// A newcomer asks to be taken in.
struct Wish {};

using Payload =
    std::variant<Agreement, Row, Entered, Confirm, StateCopy, Heartbeat, Reset, Wish, wire::Plan, wire::Adopted>;
using Packet = std::shared_ptr<const Payload>;

std::string text_of(const View& view);
std::string text_of(const Payload& payload);

// ---- what the parts need of the world ----

class Checker;

class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Nanos now() const = 0;
  virtual Rng& rng() = 0;
  virtual Checker& checker() = 0;
  /// Messages are lost, and losses are only suspected.
  virtual bool lossy() const = 0;
  virtual std::vector<Id> coordinators() const = 0;
  /// This process waits to be taken in: its connection to a coordinator says so.
  virtual bool outside(Id id) const = 0;
  virtual void send(Id from, Id to, Packet packet) = 0;
  virtual bool has_store() const = 0;
  /// Calls Trainer::decided() later, perhaps.
  virtual void ask_store(Id id, const View& view) = 0;
  /// Calls Trainer::wake(alarm) later.
  virtual void wake(Id id, Nanos delay, std::uint64_t alarm) = 0;
  /// This member is out of the job, and its process ends.
  virtual void left(Id id) = 0;
  /// Everybody who had the state is gone.
  virtual void job_lost() = 0;
  virtual void note(Id id, const std::string& text) = 0;
  virtual bool tracing() const = 0;
};

}  // namespace pliant::membership::sim
