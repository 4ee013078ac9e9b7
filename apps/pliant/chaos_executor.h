// Does to a job what was planned: signals through pidfds, commands, and undoing all of it in time.
//
// One thread. Nothing here waits: what takes time (a resize, another agent, commands for links) is a child process, and
// what comes later is done by run_due().
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/chaos_children.h"
#include "apps/pliant/chaos_links.h"
#include "apps/pliant/chaos_observer.h"
#include "apps/pliant/chaos_plan.h"
#include "apps/pliant/chaos_undo.h"
#include "apps/pliant/watched_process.h"
#include "base/clock.h"

namespace pliant::cli::chaos {

struct ExecutorOptions {
  std::string log;  ///< the output of all that is started here goes there
  LinkCommands links{};
  std::string store{};          ///< its process's number, or a file that holds it
  std::string store_restart{};  ///< a command; empty: the store is stopped for a while instead
};
/// The process that --store-pid names.
Result<ProcessId> store_process(const std::string& text);

class Executor {
 public:
  /// `say` gets a line about what was done later than execute() returned. All references must outlive this.
  Executor(const Clock& clock, Observer& observer, Guard guard, ExecutorOptions options,
           std::function<void(const std::string&)> say);
  /// Undoes all that is still done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// In words, what was done to whom. Code::not_found if the victim was gone already.
  Result<std::string> execute(const Event& event);
  /// Asks for `least` workers if the job wants fewer: those that were told to leave have made it smaller.
  void grow_to(std::uint32_t least);
  /// Does what is due by now.
  void run_due();
  /// When there is something to do again; nothing: nothing is planned.
  std::optional<Nanos> next_due() const;
  /// True while something is stopped, cut or about to be done.
  bool busy() const;
  /// Continues, thaws and heals everything now, and forgets what was planned; an agent that was killed is replaced.
  void undo_all();

  /// What the planner should know, with what this process has done.
  Situation situation() const;
  const Marks& marks() const { return marks_; }
  /// Of the last agent that was started here, once it has ended.
  std::optional<Ending> agent_ending() const;
  bool replaced_agent() const { return agent_.has_value(); }

 private:
  Status strike(std::uint64_t worker, int signal);
  Result<std::string> strike_all(const Event& event);
  Result<std::string> stop_worker(const Event& event);
  Result<std::string> change_size(const Event& event);
  Result<std::string> hit_coordinator(const Event& event);
  Result<std::string> hit_agent(const Event& event);
  Result<std::string> hit_store(const Event& event);
  Result<std::string> hit_host(const Event& event);
  Result<std::string> hit_link(const Event& event);
  /// Stops a process now and continues it after `pause`.
  Status stop_for(const ProcessId& process, Nanos pause, std::function<void()> after);
  Status freeze_for(const ProcessId& process, Nanos pause, std::function<void()> after);
  void keep_until(Nanos pause, const Undo& undo, std::function<void()> after, const std::string& command = {});
  void undo(std::uint64_t number);
  void attach(int attempts);
  void resize(std::uint32_t workers);
  void reap();
  void at(Nanos delay, std::function<void()> task);

  struct Pending {
    Undo undo;
    std::function<void()> after;
    std::string command;  // that it undoes: undone only once that has ended
  };

  const Clock& clock_;
  Observer& observer_;
  Guard guard_;
  const ExecutorOptions options_;
  std::function<void(const std::string&)> say_;
  Marks marks_;
  std::multimap<Nanos, std::function<void()>> later_;
  std::map<std::uint64_t, Pending> undos_;
  std::uint64_t next_undo_ = 0;
  Children children_;
  std::optional<WatchedProcess> agent_;
  bool agent_wanted_ = false;  // it was killed, and no other one is there yet
  bool agent_stopped_ = false, coordinator_stopped_ = false, store_stopped_ = false, link_busy_ = false;
  std::string cut_host_;
  std::string healing_;  // the command that has healed a link, or is about to
  std::deque<Nanos> coordinators_killed_;
  struct Asked {
    std::uint32_t workers = UINT32_MAX;
    Nanos at{0};
  };
  Asked asked_;  // how many workers, last
};

}  // namespace pliant::cli::chaos
