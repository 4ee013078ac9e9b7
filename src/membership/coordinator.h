// The coordinator: makes a job's first view, and plans the next ones so that the job has as many workers as are wanted.
// What it plans comes true only if all members agree; what members lose they settle among themselves and report here.
// Nothing depends on it: without a coordinator a job goes on as it is, and the next one learns the job from its
// workers.
//
// A state machine over injected events: it owns no socket, no clock and no file. Each event returns what to send to
// whom; what a successor must know is in memory(), to be kept *before* anything is sent.
//
//   state      event                                     to         action
//   gathering  a worker joins                            gathering  remember it, or refuse it with the reason
//   gathering  `start` workers are there                 leading    first view: term 1, epoch 1, by id; send it to all
//   gathering  so many ended that it cannot form         hopeless   refuse those who wait, and those who come
//   gathering  somebody reports a view, or there is one  claiming   claim a term above it from its members
//              in the memory of a predecessor
//   claiming   enough members promised (see below)       leading    plan
//   any        declined                                  claiming   claim above the term that was promised
//   any        a newer view is reported                  same       it is the view now, and the plan is void; tell who
//   is
//                                                                  not in it any more
//   any        ... of a term above ours                  claiming   claim above it
//   leading    the view is not what is wanted            leading    send a plan to all members and to who is new in it
//   leading    a member joins or reports the plan's base leading    send it the plan (again)
//   leading    a member cannot reach a newcomer of the   leading    a plan without that one, for kUnreached
//              plan
//   any        a member says what it shares              same       refuse newcomers that share something else
//   any        all members of the view said goodbye or   over       tell all outside of the view, and agents how it
//              have ended                                           ended (see below); nobody is started
//   any        the same, but the job has lost its state  rescue     is there a checkpoint? If there is none, over
//              (see below), and it writes checkpoints
//   rescue     there is one, and a worker is ready       leading    a view of those who are ready, with a term of its
//                                                                   own, that says where to begin again
//   any        nobody is left, but members who may have  claiming   kTimeToReport later, ask them which view they know:
//              been left behind in an older view than               claim a term. Whoever answers that it knows no
//              newer that in which somebody died                          one is out; the others are waited for
//   over       a newer view with living members          claiming   it was not over
//
// How a job ended: finished, if a member of the last view said that its loop is finished, and was not killed before its
// session ended (session::WorkerNote::last_word); else stopped, if somebody asked for that or a member said that all of
// them were told to leave; else failed, however its workers ended. What was said once stands, for successors too
// (Memory::said), until a newer view with living members is reported.
// A job has lost its state if it would fail; or if it would be stopped although nobody asked for that and somebody
// waits to be taken in. All of its members are known to have ended then, by their own word or by a kernel's: whoever is
// merely out of reach is waited for.
//
// Enough: a strict majority of the view's members; of exactly half, the half with the lowest id.
// Newest: by epoch, then by term.
//
//   a worker of a job with a view            what it costs
//   ended without ever having been a member  a restart
//   ended as a member in mid-loop,           a restart
//   whatever its exit status
//   left: said that its loop has ended, and  one worker less is wanted, but not less than `least`
//   a view without it is reported
//   ... because its host is taken away       nothing: another one is started where and when there is room
//   ... after it was to be replaced          nothing
//
// Workers are started while fewer than wanted are there or on their way; every missing restart stands for one that is
// not replaced. Members count until a view without them is reported; who is out of reach together with its host's agent
// does not. Ids are never used twice.
//
// Of a worker that has ended only that is remembered (Former), once nothing else can be asked about it: its end has had
// its consequences, it is not connected, it has not finished a loop, no view that it was in is newer than the one in
// force, and that one came from a plan that was made after the end was known here. Every view to come follows from that
// one, or from later plans, so none can name it; one that does all the same, by the plan of another coordinator, names
// a worker that has ended. Late letters of it and of its agent are answered as before: it is refused, its agent is
// told that its end was heard of.
//
// Whoever is to be replaced (Replace) stays until somebody else is ready, and does not count among those there; then it
// goes, and the next one is started on another host if that can be. Whoever is not needed waits, ready to come back at
// once, for as long as workers are kept warm, and goes then.
//
// There is one agent per host, and perhaps one that only watches (no slots). Each says AgentHello twice: first of all,
// and again when it has named the workers it already has (Started). Workers are started on the host that came first of
// those that have a free slot. A slot whose worker fails soon, again and again, or was replaced, stays empty for a
// while. What an agent or a kernel says of the end of a worker's own process is proof, and is passed on to members on
// other hosts (Dead). All agents hear how the job ended (Over), and that they shall end (Stop).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator_files.h"
#include "membership/former.h"
#include "membership/view.h"
#include "wire/messages.h"

namespace pliant::membership {

struct CoordinatorOptions {
  std::string job;
  std::uint64_t seed = 0;
  std::uint32_t wanted = 1;
  std::uint32_t start = 0;  ///< so many make the first view; 0: as many as are wanted
  std::uint32_t least = 1;  ///< resizing stops there
  std::uint32_t most = wire::kMaxMembers;
  int restarts = 10;                      ///< replacements for workers that fail
  std::uint32_t spare = 0;                ///< workers beyond those wanted, ready to take somebody's place
  Nanos warm = std::chrono::seconds(10);  ///< that others wait who are not needed
  bool checkpoints = false;               ///< are written: a job that has lost its state can begin again from one
};

/// What one coordinator leaves to the next.
struct Memory {
  View view;  ///< without members: none was ever made
  std::uint32_t wanted = 1;
  std::uint32_t spare = 0;  ///< workers that wait to be taken in; for onlookers
  std::uint64_t next_id = 0;
  int restarts = 0;                             ///< left; below zero: so many are not replaced
  wire::Stopping stopping{};                    ///< somebody asked for the end of the job
  std::map<std::uint64_t, Outcome> outcomes{};  ///< of the view's members, or a later one's, whose loop has ended
  /// Members of the view, or of a later one, and those who finished, whose process has ended, and the epoch of the view
  /// that each was in.
  std::map<std::uint64_t, std::uint64_t> ended{};
  /// Workers outside of the view that were in a plan, and are not known to have ended: they may have become members.
  /// Each with its host.
  std::map<std::uint64_t, std::string> invited{};
  std::set<std::string> hosts{};     ///< that have had an agent
  std::optional<wire::Over> said{};  ///< how the job ended, if that was said
  bool operator==(const Memory& other) const;
};

struct Outgoing {
  Link to = 0;
  wire::Message message;  ///< after a Refusal the connection is of no use
};
using Letters = std::vector<Outgoing>;

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options, const std::optional<Memory>& memory = {});

  Letters on_join(Link link, const wire::Join& join);
  /// Anything else; what makes no sense from that link is ignored.
  Letters on_message(Link link, const wire::Message& message);
  /// The connection has ended. Whoever was behind it may come again.
  Letters on_closed(Link link);
  /// The kernel says that a worker's process is gone; what it left in writing of the end of its loop, and of the view
  /// that it acted in last, if it did.
  Letters on_gone(std::uint64_t id, Outcome outcome = Outcome::running, wire::LastView view = {});
  /// The answer to needs_checkpoint(): the step of the newest good one that this job has written, or why there is none.
  Letters on_checkpoint(std::optional<std::uint64_t> step, const std::string& why = {});
  /// It is that late, on any clock that does not go back. Now and then, for what has to wait.
  Letters on_time(Nanos now);

  const std::string& job() const { return options_.job; }
  bool formed() const { return view_.size() > 0; }
  /// Every member of the view is done or dead.
  bool over() const;
  /// The agent of some host has not been told that the job is over, because it is out of reach.
  bool some_have_not_heard() const;
  /// All who held the state of the job are gone: is there a checkpoint?
  bool needs_checkpoint() const { return lost() && rescue_ == Rescue::open; }
  /// How the job ended: running while it has not, else finished, stopped or failed.
  Outcome verdict() const;
  /// What it knows of everybody, and why the job is over or not: lines for whoever looks for a fault.
  std::string describe() const;
  const View& view() const { return view_; }
  Memory memory() const;
  /// Workers of which more is known than that they have ended.
  std::size_t known() const { return workers_.size(); }

 private:
  using Worker = WorkerFile;
  using Agent = AgentFile;
  using News = AgentNews;

  // Events, by message.
  template <class T>
  void on(Link, const T&) {}
  void on(Link link, const wire::Ready& ready);
  void on(Link link, const wire::Shares& shares);
  void on(Link link, const wire::Adopted& adopted);
  void on(Link link, const wire::Promise& promise);
  void on(Link link, const wire::Decline& decline);
  void on(Link link, const wire::Bye& bye);
  void on(Link link, const wire::LoopEnded& ended);
  void on(Link link, const wire::Progress& progress);
  void on(Link link, const wire::Resize& resize);
  void on(Link link, const wire::Replace& replace);
  void on(Link link, const wire::Unreached& unreached);
  void on(Link link, const wire::AgentHello& hello);
  void on(Link link, const wire::Stop& stop);
  void on(Link link, const wire::Started& started);
  void on(Link link, const wire::Ended& ended);

  std::string objection_to(const wire::Join& join) const;
  std::string objection_to(std::uint64_t id, const std::string& layout) const;
  std::string objection_to(const wire::Resize& resize) const;
  void take_up(const wire::Join& join, Link link);
  void know_layout(std::uint64_t member, const std::string& layout);
  void note_ready(std::uint64_t id, bool waits, std::uint64_t knows);

  // What follows from the state, after every event.
  Letters act();
  void form_first_view();
  void begin_again();
  void learn(const View& view);
  void claim_above(std::uint64_t term);
  void plan();
  void start_workers();
  void tell_over();
  void let_go();
  void dismiss_idle();
  bool was_last(std::uint64_t id) const;
  bool any_member(Outcome outcome) const;
  bool anybody_finished() const;
  bool may_be_member(std::uint64_t id) const;
  bool is_disowned(const Worker& worker) const;
  bool may_know_more() const;
  bool may_decide(const Worker& worker) const;
  std::uint64_t trained_in() const;
  bool may_all_be_gone() const;
  void look_for_the_end();
  void hear_view(std::uint64_t id, const wire::ViewNotice& notice);
  std::vector<std::uint64_t> who_must_ask_again(const View& view);
  std::uint64_t newest_of_the_dead() const;
  bool all_gone() const;
  bool may_have_switched() const;
  bool lost() const;
  /// There will be no first view.
  bool is_hopeless() const { return said_ && !formed(); }
  std::string reason_of_failure() const;
  void tell_agents_over(const wire::Over& over);
  void tell_agents();
  void tell_of_death(std::uint64_t id);
  void tell_deaths_to(std::uint64_t id);
  bool is_proof_for(std::uint64_t member, std::uint64_t id) const;
  void lower_wanted();
  Worker& file_of(std::uint64_t id);
  void note_end(std::uint64_t id, Worker& worker);
  bool may_be_forgotten(std::uint64_t id, const Worker& worker) const;
  void forget();

  /// Its loop has ended, by its own word. A process that ends with status 0 in the middle of it has not said so.
  static bool has_parted(const Worker& worker) { return worker.goodbye || worker.outcome != Outcome::running; }
  bool has_ended(const Worker& worker) const;
  /// What it left in writing is known.
  static bool has_note(const Worker& worker) { return worker.ended && worker.last_view.epoch > 0; }
  static bool is_there(const Worker& worker) { return worker.link && !worker.ended; }
  enum class End { bad, good, taken };
  void refuse_to_begin();
  void count(Worker& worker, End end);
  bool stopping() const { return stopping_ != wire::Stopping::no; }
  bool in_view(std::uint64_t id) const { return view_.rank_of(id) >= 0; }
  bool is_planned(std::uint64_t id) const;
  bool promised_by_enough() const;
  bool steady() const;
  std::vector<wire::Member> target() const;
  std::vector<std::uint64_t> waiting() const;
  std::vector<std::uint64_t> ready() const;
  std::uint32_t needed_to_form() const;
  std::optional<std::uint64_t> worker_at(Link link) const;
  std::string answer_to(const wire::Resize& resize) const;
  std::pair<const std::string, Agent>* agent_at(Link link);
  const Agent* agent_of(const Worker& worker) const;
  bool lost_with_host(const Worker& worker) const;
  std::int64_t workers_on(const std::string& host) const;
  bool lacks_slots(const std::string& host) const;
  static void read_note(Worker& worker, Outcome outcome, wire::LastView view);
  void cool_down(const Worker& worker, bool replaced);
  std::pair<const std::string, Agent>* agent_with_room();
  std::vector<wire::Headcount> headcount() const;
  bool has_agents() const;
  void send_to_agents(const wire::Message& message);
  void send(Link link, wire::Message message);
  void send_to(std::uint64_t id, wire::Message message);

  const CoordinatorOptions options_;
  Letters outbox_;  // of the event in progress

  // The job.
  View view_;
  std::uint32_t wanted_;
  int restarts_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Worker> workers_;  // by id; all that were ever heard of
  Former former_;                            // but these
  std::optional<wire::Join> model_;          // the first to join: the others must be built alike
  SharedLayout layout_;
  std::optional<wire::Over> said_;  // how the job ended: nobody is told anything else
  enum class Rescue { open, possible, impossible };
  Rescue rescue_ = Rescue::open;  // of a job that has lost its state
  std::uint64_t resume_step_ = 0;
  std::string no_rescue_;      // why not
  wire::Stopping stopping_{};  // somebody asked for the end of the job

  // This coordinator's part in it.
  std::uint64_t term_ = 0;
  bool leading_ = false;
  std::set<std::uint64_t> promised_;
  std::optional<wire::Plan> plan_;

  std::map<std::string, Agent> agents_;  // by host; all that were ever there
  Nanos now_{0};
  std::optional<Nanos> idle_since_;  // more wait than are needed
  std::optional<Nanos> gone_since_;  // all members of the view
  bool asked_ = false;               // those who may have been left behind, which view they know
  bool settled_ = false;             // nobody need wait
};

}  // namespace pliant::membership
