// The twin of a worker's connections: letters and words between simulated processes, over hosts whose links may fail.
//
// On one host nothing that is sent gets lost, and every death is proven to every neighbour a little later; neighbours
// hang up on a process that is stopped, and it is connected to again when it runs. Between hosts a connection holds
// what cannot be delivered, ends after a second of silence, and is made again; a death there is a connection's end,
// until somebody who can prove it says so.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "session/transport.h"
#include "simulation/process.h"
#include "simulation/twin_group.h"

namespace pliant::sim {

/// Arrivals on one connection keep their order.
class InOrder {
 public:
  /// How long what is on its way still takes.
  Nanos left(Nanos now) const { return std::max(Nanos(0), last_ - now); }
  Nanos delay(Nanos now, Nanos wanted) {
    last_ = std::max(last_ + Nanos(1), now + wanted);
    return last_ - now;
  }

 private:
  Nanos last_{0};
};

class TwinTransport final : public session::Transport {
 public:
  TwinTransport(Process& process, wire::Member self);
  ~TwinTransport() override;

  // ---- session::Transport ----
  void start(session::TransportEvents events) override;
  void stop() override { events_.reset(); }
  void expect(std::vector<wire::Member> members) override;
  void send(std::vector<std::uint64_t> ids, wire::Message message) override;
  bool reaches(const std::vector<wire::Member>& members) const override;
  void believe_dead(std::uint64_t id, wire::LastView view) override;
  /// Simulated workers are honest.
  void leave_behind(std::uint64_t, const std::string&) override { PLIANT_ASSERT(!"an honest worker was accused"); }
  void on_settled(std::set<std::uint64_t> at_hand) override;
  void note_view(wire::LastView view) override { process_.note_view(view); }
  Result<std::unique_ptr<collective::Group>> form(collective::Team team) override;
  void tell(wire::Message message) override;
  void report(wire::Progress progress) override;
  void report_outcome(Outcome outcome, std::uint64_t step) override;
  void say_goodbye(Outcome outcome, std::uint64_t step) override;
  void hang_up() override {}  // a program that has failed ends soon
  void decide(const std::string& key, const std::string& text, Answered answered) override;

  // ---- groups ----
  void subscribe(TwinGroup& group);
  void unsubscribe(TwinGroup& group);
  void send_word(std::uint64_t to, std::uint64_t view, const Word& word);

  // ---- what happens around it ----
  Process& process() { return process_; }
  /// A worker has died; nobody has told yet.
  void peer_died(const TwinTransport& peer);
  /// Nothing has come from this host for so long that its workers count as lost.
  void silence_from(const std::string& host);
  /// A worker lives and does not run.
  void stands_still(std::uint64_t id);
  /// What was held on the way from `host` arrives.
  void healed_from(const std::string& host);
  void coordinator_says(std::uint64_t connection, const wire::Message& message);
  void coordinator_closed(std::uint64_t connection);

 private:
  struct ForView {
    std::uint64_t view = 0;
    Word word;
  };
  using Parcel = std::variant<wire::Message, ForView>;
  struct Link {
    wire::Member member{};
    bool connected = false, lost = false, proven = false, orderly = false, dialing = false;
    bool settled_without = false;
    std::uint64_t connection = 0;  // its number
    wire::LastView last_view;      // of the dead
    InOrder order{};               // of what is sent on it
    std::deque<Parcel> outbox{};   // until it is connected
    std::deque<Parcel> held{};     // came while the way was cut
  };

  bool remote(const Link& link) const { return link.member.host != self_.host; }
  void dial(std::uint64_t id);
  void connected(std::uint64_t id, const wire::Member& member, std::uint64_t connection);
  void flush(Link& link);
  void post(Link& link, Parcel parcel);
  void arrive(std::uint64_t from, std::uint64_t connection, Parcel parcel);
  void take_in(std::uint64_t from, Parcel parcel);
  void lose(std::uint64_t id, bool proven, const std::string& how, wire::LastView view = {});
  void hang_up(std::uint64_t id, const std::string& how);
  void tell_loss(const Link& link);
  void tick();
  void beat();
  void look_for_coordinator();

  Process& process_;
  const wire::Member self_;
  std::optional<session::TransportEvents> events_;
  std::map<std::uint64_t, Link> links_;
  std::map<std::uint64_t, TwinGroup*> groups_;                                     // by view
  std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, Parcel>>> parked_;  // for views not entered yet
  std::uint64_t coordinator_ = 0;                                                  // the connection to it; 0: none
  Nanos no_coordinator_since_{0};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool dying_ = false;  // it says nothing more
};

}  // namespace pliant::sim
