// Hosts that a provider gives to a job and takes from it: how many slots are asked for, and what the agents there
// write.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/event_log.h"
#include "apps/pliant/console.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/provider.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class SlurmProvider;

struct HostSupplyEvents {
  /// A worker's hour costs so much from now on.
  std::function<void(double per_hour)> on_price;
  /// Whole lines for people.
  std::function<void(const std::string& lines)> say;
};

/// Does nothing if the job's plan names no provider.
class HostSupply {
 public:
  static constexpr Nanos kIdle = std::chrono::seconds(10);  ///< that slots are without use before they are given back

  /// Everything must outlive it. `dir` is the job's directory.
  HostSupply(net::Loop& loop, const JobRecord& record, std::string dir, agent::EventLog& log, HostSupplyEvents events);
  ~HostSupply();
  HostSupply(const HostSupply&) = delete;
  HostSupply& operator=(const HostSupply&) = delete;

  /// `grace`: between asking workers to leave and killing them.
  Status open(Nanos grace);
  /// So many are of use now. More are asked for at once, fewer only in a job that has begun, when they have been
  /// without use for a while.
  void ask_for(std::uint32_t slots, bool begun, Nanos now);
  /// Nothing is of use any more.
  void ask_for_none();
  /// See Provider::end().
  void end();
  /// Nobody of what it has given works for this job any more.
  bool gone() const;

  /// Copies what the agents on its hosts have written by now.
  void poll(Console& console);
  /// The same to the last byte. True once nothing is left.
  bool drain(Console& console);

 private:
  ProviderEvents provider_events();
  void follow_price();
  void follow_outputs();

  net::Loop& loop_;
  const JobRecord& record_;
  const std::string dir_;
  agent::EventLog& log_;
  const HostSupplyEvents events_;
  std::unique_ptr<Provider> provider_;  // nullptr: hosts are named
  SlurmProvider* slurm_ = nullptr;      // the one below, if it is that
  std::uint32_t asked_ = 0;             // slots
  std::optional<Nanos> idle_since_;     // more slots than are of use
  std::vector<OutputTail> tails_;
  std::set<std::string> followed_;  // files
};

}  // namespace pliant::cli
