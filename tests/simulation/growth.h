// Demands that a job grows as asked: nobody waits for long to be taken in while there is room for it and all members
// can reach it.
#pragma once

#include <map>

#include "simulation/checker.h"
#include "simulation/world.h"

namespace pliant::sim {

class Growth {
 public:
  /// Both must outlive this.
  Growth(World& world, const Checker& checker) : world_(world), checker_(checker) {}
  void begin();

 private:
  struct Wait {
    Nanos since{0};
    std::uint64_t step = 0;  // that the job was at
  };
  void look();
  bool is_kept_waiting(const Process& process) const;
  bool reach_each_other(const std::string& a, const std::string& b) const {
    return !world_.cut(a, b) && !world_.cut(b, a);
  }

  World& world_;
  const Checker& checker_;
  std::map<std::uint64_t, Wait> waits_;  // by worker
};

}  // namespace pliant::sim
