// A whole job in one thread, on a fake clock and a fake network: members with the real machine, coordinators that come
// and go, and faults at random times. Everything follows from the seed.
//
// Two worlds. On one host nothing that is sent gets lost, links keep their order, and every death is proven to every
// survivor a little later. Across hosts messages are lost, doubled, late and out of order, links fail in one or both
// directions and heal, and losses are only suspected, often wrongly.
#pragma once

#include <map>
#include <memory>
#include <queue>
#include <set>

#include "membership/sim_coordinator.h"
#include "membership/sim_trainer.h"

namespace pliant::membership::sim {

struct Options {
  std::uint64_t seed = 0;  ///< even: one host; odd: several
  bool store = false;      ///< several hosts and a store outside of the job
  Mutation mutation = Mutation::none;
  bool trace = false;  ///< keep a line for every event
};

struct Outcome {
  std::string failure;  ///< empty: every invariant held
  std::string trace;    ///< if asked for
  std::uint64_t events = 0;
  std::uint64_t digest = 0;  ///< of all that happened, in order
  std::size_t steps = 0;     ///< that became stable
  std::uint64_t views = 0;
  bool alive = false;  ///< enough members were left for the job to go on, and it did
};

Outcome simulate(const Options& options);

class Simulation final : public Surroundings {
 public:
  explicit Simulation(const Options& options);
  Outcome run();

  Nanos now() const override { return now_; }
  Rng& rng() override { return rng_; }
  Checker& checker() override { return checker_; }
  bool lossy() const override { return several_hosts_; }
  std::vector<Id> coordinators() const override;
  bool outside(Id id) const override;
  void send(Id from, Id to, Packet packet) override;
  bool has_store() const override { return options_.store; }
  void ask_store(Id id, const View& view) override;
  void wake(Id id, Nanos delay, std::uint64_t alarm) override;
  void left(Id id) override;
  void job_lost() override { lost_ = true; }
  void note(Id id, const std::string& text) override;
  bool tracing() const override { return options_.trace; }

 private:
  enum class Kind { deliver, wake, tick, lost, fault, strike, newcomer, coordinator, heal, ask, decided };
  struct Event {
    Nanos at{0};
    std::uint64_t order = 0;
    Kind kind = Kind::deliver;
    Id to = 0, from = 0;
    std::uint64_t number = 0;
    Nanos sent{0};
    Packet packet{};
    std::shared_ptr<const View> view{};  // that the store is asked for, or has taken
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  void schedule(Nanos delay, Event event);
  void handle(const Event& event);
  void deliver(const Event& event);
  void tick(Id id);
  void decide(Id id, const View& view);

  void fault();
  void fault_on_one_host(unsigned dice);
  void fault_across_hosts(unsigned dice);
  void either_fault(unsigned dice);
  void strike(Id id);
  void crash(Id id);
  void part(Id alone);
  void pause(Id id);
  void suspect_wrongly();
  void add_newcomer();
  void add_coordinator();
  void change_coordinators();
  void heal();

  bool cut(Id from, Id to) const;
  std::uint64_t side_of(Id id) const;
  Nanos delay_of_link();
  Trainer* trainer(Id id);
  Id random_member();
  bool may_crash(Id id);
  bool done();
  bool can_go_on(Id without = 0) const;
  bool can_go_on_by_store(Id without) const;
  bool quorum_lives(const View& view, Id without) const;
  std::string situation() const;

  const Options options_;
  const bool several_hosts_;
  Rng rng_;
  Checker checker_;
  Nanos now_{0};
  std::uint64_t order_ = 0, events_ = 0, digest_ = 0;
  std::string trace_;
  bool lost_ = false, healed_ = false;
  std::size_t goal_ = 0;

  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::map<Id, std::unique_ptr<Trainer>> trainers_;  // those whose process runs
  std::map<Id, std::unique_ptr<PlanningCoordinator>> coordinators_;
  std::vector<std::unique_ptr<Trainer>> gone_;
  Id next_member_ = 1, next_coordinator_ = 1000;

  // The network.
  std::map<std::pair<Id, Id>, Nanos> last_on_link_;  // one host: links keep their order
  std::map<std::pair<Id, Id>, Nanos> cut_off_;       // sent by one that crashed, and after this: never left
  std::map<std::pair<Id, Id>, Nanos> linger_;        // by how much the last words of the dead are late
  std::map<Id, Nanos> paused_;
  std::map<std::uint64_t, View> store_;  // by epoch
  std::uint64_t partition_ = 0;          // 0: none
  Id alone_ = 0;                         // if not 0: who is on the other side of it
  bool one_way_ = false;
  unsigned sides_ = 2;
  unsigned loss_ = 0, doubles_ = 0, late_ = 0;  // per cent
};

}  // namespace pliant::membership::sim
