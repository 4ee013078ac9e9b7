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
//   both      a host's agent ends, but not by      same      again: its workers shall end as well
//             itself, or is still there
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
#include <optional>
#include <string>
#include <vector>

#include "agent/countdown.h"
#include "agent/event_log.h"
#include "agent/lead.h"
#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_keeper.h"
#include "apps/pliant/discovery.h"
#include "apps/pliant/host_supply.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/job_news.h"
#include "apps/pliant/led_host.h"
#include "apps/pliant/own_record.h"
#include "apps/pliant/run.h"
#include "apps/pliant/signals.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

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
  using Phase = agent::Lead::Phase;
  Status start();
  void keep_coordinator();
  void on_place(const std::string& address);
  void on_message(const wire::Message& message);
  void on_state(const wire::JobState& state);
  void on_signal(int number);
  void stop_job(int number, wire::Stopping how);
  void on_hopeless(const Error& error);
  void tick();
  void finish_soon();
  void sweep_parts();

  // head_hosts.cc: the hosts.
  void add_host(const HostSlots& place);
  void lead_to(LedHost& host);
  void take_up(LedHost& host, const ProcessId& process);
  void watch(LedHost& host, bool from_now);
  Result<SpawnOptions> way_to(const LedHost& host) const;
  void reap();
  void on_end(LedHost& host);
  void on_last_end(LedHost& host, const Ending& ending);
  void give_up_on(LedHost& host);
  void on_hosts(const std::vector<HostSlots>& hosts);
  void follow_slots();
  std::uint32_t slots() const;
  bool all_gone() const;

  HostSupplyEvents supply_events();
  void ask_supply();

  void stop_all(wire::Stopping how);
  void signal_all(int number);
  bool output_copied();
  Snapshot snapshot() const;
  void say(const std::string& lines);

  const JobRecord& record() const { return job_.get(); }

  const RunOptions options_;
  OwnRecord job_;
  const std::vector<std::string> environment_;
  SteadyClock clock_;
  Nanos started_;
  net::Loop loop_;
  Console console_;
  StatusReporter reporter_;
  SignalWatch signals_;
  rlimit files_{};
  std::deque<LedHost> hosts_;
  std::optional<CoordinatorKeeper> keeper_;
  std::optional<Discovery> discovery_;
  agent::EventLog events_;
  HostSupply supply_;
  agent::Lead lead_;
  agent::Countdown countdown_;  // of what leads to the hosts
  JobNews news_;
};

}  // namespace pliant::cli
