// The head of a job on several hosts: the `pliant run -H …` process. Keeps the coordinator alive, leads to every host
// by a command that starts the host's agent there (`pliant run --join -`, with the job's ticket on its stdin), copies
// what those write, and shows how the job is doing. Workers are the agents' affair. Instead of hosts that are named
// there may be a provider (--provider slurm), which is asked for as many slots as the job could use; the agents of what
// it gives come by themselves.
//
//   phase     event                                to        action
//   running   a host's agent ends                  running   again, after a while that doubles from 0.1 (before there
//                                                            is a view: 1) to 30 s
//   running   ... the third time, and no view yet  ending    unless those left are enough: stop all, say why
//   running   the script names other hosts         running   lead to the new ones, stop those it does not name any more
//   running   the coordinator says: over           ending    agents hear it too: wait for them
//   running   INT, TERM or HUP                     stopping  Stop to all agents, by way of the coordinator
//   stopping  another signal, QUIT                 stopping  the same, at once
//   both      the grace time and more is over      same      end what leads to the hosts
//   both      nothing leads to any host            -         end the coordinator
//
// The exit code is 0 if the job finished, 128 + N if signal N stopped it, 143 if all its workers were told to leave,
// else that of what failed.
//
// Nothing of the job depends on it: if it is killed, the job goes on, and `pliant run --attach` takes it up again.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/pliant/account.h"
#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_keeper.h"
#include "apps/pliant/discovery.h"
#include "apps/pliant/event_log.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/provider.h"
#include "apps/pliant/run.h"
#include "apps/pliant/signals.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class SlurmProvider;

class Head {
 public:
  /// `record` names the job and its program; `dir` is its directory. Agents that were started already are taken up.
  Head(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment);
  ~Head();
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  /// Runs the job to its end. Blocks the process's signals for good. Returns the exit status.
  int run();

 private:
  enum class Phase { running, ending, stopping };
  struct Host {
    HostSlots place;
    std::optional<WatchedProcess> process{};  // that leads to its agent
    std::vector<OutputTail> tails{};
    Nanos since{0};  // when it was led to
    int failures = 0;
    std::optional<Nanos> again_at{};
    bool wanted = true;
    bool runs() const { return process && process->running(); }
  };

  Status start();
  void keep_coordinator();
  void on_place(const std::string& address);
  void on_message(const wire::Message& message);
  void on_over(const wire::Over& over);
  void on_signal(int number);
  void on_hopeless(const Error& error);
  void tick();
  void finish_soon();
  void conclude();
  void sweep_parts();

  // The hosts.
  void add_host(const HostSlots& place);
  void lead_to(Host& host);
  void take_up(Host& host, const ProcessId& process);
  void watch(Host& host, bool from_now);
  Result<SpawnOptions> way_to(const Host& host) const;
  void reap();
  void on_end(Host& host);
  Nanos pause_before(const Host& host) const;
  void give_up_on(Host& host);
  void on_hosts(const std::vector<HostSlots>& hosts);
  void follow_slots();
  std::uint32_t slots() const;
  bool all_gone() const;

  // head_supply.cc: hosts that a provider gives, and the ledger.
  Status open_supply();
  ProviderEvents supply_events();
  void follow_price();
  void ask_provider();
  void follow_outputs();
  bool provider_gone() const;

  void stop_all(bool force);
  void signal_all(int number);
  bool output_copied();
  Snapshot snapshot() const;
  void say(const std::string& lines);
  std::string output_of(const Host& host, const char* end) const;

  const RunOptions options_;
  JobRecord record_;
  JobDir dir_;
  const std::vector<std::string> environment_;
  SteadyClock clock_;
  Nanos started_;
  net::Loop loop_;
  Console console_;
  StatusReporter reporter_;
  SignalWatch signals_;
  rlimit files_{};
  std::deque<Host> hosts_;
  std::optional<CoordinatorKeeper> keeper_;
  std::optional<Discovery> discovery_;
  EventLog events_;
  Account account_;
  std::unique_ptr<Provider> provider_;  // nullptr: hosts are named
  SlurmProvider* slurm_ = nullptr;      // the one below, if it is that
  std::uint32_t asked_ = 0;             // slots
  std::optional<Nanos> idle_since_;     // more slots than are wanted
  std::vector<OutputTail> tails_;       // of agents on the provider's hosts
  std::set<std::string> followed_;

  // What the coordinator said last.
  wire::JobState state_;
  std::optional<wire::Over> over_;
  std::optional<wire::Progress> progress_;
  Pace pace_;

  Phase phase_ = Phase::running;
  std::optional<bool> stop_wanted_;  // to be sent to the agents; true: at once
  std::optional<Nanos> end_at_;      // when to end what leads to the hosts
  std::optional<Nanos> kill_at_;
  std::optional<Nanos> leave_at_;  // when to stop waiting for whoever reads our output
  bool interrupted_ = false;
  std::string failure_;
  bool concluded_ = false;
  Outcome outcome_ = Outcome::running;  // of the job; known at the end
  int exit_status_ = 0;
};

}  // namespace pliant::cli
