// A small model of a coordinator: learns the job from its members, and plans who comes and who goes.
#pragma once

#include <map>
#include <set>

#include "membership/sim_types.h"

namespace pliant::membership::sim {

class PlanningCoordinator {
 public:
  PlanningCoordinator(Surroundings& world, Id id, std::size_t largest) : world_(world), id_(id), largest_(largest) {}

  void receive(Id from, const Payload& payload);
  void tick();
  /// Plan without this member.
  void remove(Id id) { unwanted_.insert(id); }

  Id id() const { return id_; }

 private:
  void on(Id from, const Agreement& message);
  void learn(const wire::ViewNotice& view);
  View next() const;
  bool mandated() const { return 2 * promised_.size() > view_.members.size(); }

  Surroundings& world_;
  const Id id_;
  const std::size_t largest_;
  View view_;
  std::map<Id, Nanos> waiting_;  // newcomers, and when they were heard last
  std::set<Id> unwanted_;
  std::uint64_t term_ = 0, highest_ = 0;
  std::set<Id> promised_;
  Nanos claimed_at_{0};
};

}  // namespace pliant::membership::sim
