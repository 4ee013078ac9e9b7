// The shipped state machine, as a simulated member runs it: unchanged, or with one thing done wrong around it.
#pragma once

#include "membership/sim_types.h"

namespace pliant::membership::sim {

class Machine {
 public:
  Machine(Id id, View view, Mutation mutation, bool has_store)
      : member_(id, std::move(view), has_store), mutation_(mutation) {}

  Decision on_lost(Id id, bool proven, Nanos now);
  Decision on_message(Id from, const Agreement& message, Nanos now);
  Decision on_time(Nanos now) { return member_.on_time(now); }
  Decision adopt(const View& view, Nanos now);
  Decision on_decided(const View& view, Nanos now) { return member_.on_decided(view, now); }
  bool on_plan(const wire::Plan& plan) { return member_.on_plan(plan); }
  void set_holds() { member_.set_holds(true); }
  const Member& member() const { return member_; }

 private:
  Member member_;
  Mutation mutation_;
};

}  // namespace pliant::membership::sim
