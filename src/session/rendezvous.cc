#include "session/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "net/gate.h"
#include "net/line.h"
#include "net/loop.h"
#include "session/rendezvous_note.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
using membership::View;

constexpr auto kBetweenLooks = 20ms;
constexpr std::size_t kMostNamed = 16;  // ranks in a message

std::string in_seconds(std::chrono::milliseconds span) { return fmt::format("{:g} s", seconds(span)); }

/// What all know when they have met.
struct Met {
  View view;
  net::Secret secret;
};

// ---- rank 0 ----

/// Waits until all are there, and tells them who all are.
class Gathering {
 public:
  Gathering(const Launch& launch, const MeetOptions& options, wire::Join own, PostedNote note)
      : launch_(launch), options_(options), own_(std::move(own)), note_(std::move(note)) {}

  Result<View> wait(Fd door, const net::Secret& secret);

 private:
  struct Seat {
    net::Line line;
    std::optional<wire::Join> join;
  };
  std::string objection_to(const net::Introduction& who) const;
  void admit(net::Guest guest);
  void read(std::uint64_t rank);
  void take(std::uint64_t rank, const wire::Join& join);
  void lose(std::uint64_t rank);
  void give_up();
  void conclude(Result<View> outcome);
  void say(std::uint64_t rank, const wire::Message& word);
  void flush(std::uint64_t rank);
  void stop_if_said();
  Status compare(const wire::Join& join) const;
  Result<View> first_view() const;

  const Launch& launch_;
  const MeetOptions& options_;
  const wire::Join own_;
  PostedNote note_;
  net::Loop loop_;
  std::map<std::uint64_t, Seat> seats_;  // by rank
  std::vector<net::Line> surplus_;       // kept open, so that what they were told reaches them
  std::optional<Result<View>> outcome_;
};

Result<View> Gathering::wait(Fd door, const net::Secret& secret) {
  net::GateOptions manners;
  manners.objection = [this](const net::Introduction& who) { return objection_to(who); };
  net::Gate gate(
      loop_, std::move(door), secret, launch_.job, [this](net::Guest guest) { admit(std::move(guest)); }, manners);
  loop_.every(options_.patience, [this] { give_up(); });
  loop_.run();
  return *outcome_;
}

std::string Gathering::objection_to(const net::Introduction& who) const {
  if (who.purpose != net::Purpose::coordinator || who.to != own_.id || who.protection != net::Protection::sealed)
    return "a call for somebody else";
  bool fits = who.from > 0 && who.from < std::uint64_t(launch_.size);
  return fits ? "" : fmt::format("there is no rank {}", who.from);
}

void Gathering::admit(net::Guest guest) {
  if (outcome_) return;
  auto rank = guest.who.from;
  auto line = net::Line::remote(std::move(guest.socket), std::move(guest.rest), std::move(guest.keys));
  if (seats_.contains(rank)) {
    [[maybe_unused]] auto sent = line.try_send(
        wire::Refusal{fmt::format("rank {} is there already: is job '{}' run twice?", rank, launch_.job)});
    surplus_.push_back(std::move(line));
    return;
  }
  int fd = line.fd();
  seats_.emplace(rank, Seat{std::move(line), {}});
  loop_.watch(
      fd, [this, rank] { read(rank); }, [this, rank] { flush(rank); });
  read(rank);  // it may have spoken already
}

void Gathering::read(std::uint64_t rank) {
  while (seats_.at(rank).line) {
    auto received = seats_.at(rank).line.receive();
    if (!received.ok()) return lose(rank);
    if (!received.value()) return;
    if (const auto* join = std::get_if<wire::Join>(&received.value()->message)) take(rank, *join);
  }
}

void Gathering::take(std::uint64_t rank, const wire::Join& join) {
  auto alike = join.id == rank ? compare(join) : Status(Error{Code::protocol, "a rank that calls itself another"});
  if (!alike.ok()) return conclude(alike.error());
  seats_.at(rank).join = join;
  say(rank, wire::Answer{1, ""});
  auto there = std::ranges::count_if(seats_, [](const auto& entry) { return entry.second.join.has_value(); });
  if (there + 1 == launch_.size) conclude(first_view());
}

Status Gathering::compare(const wire::Join& join) const {
  if (join.build != own_.build)
    return Error{Code::mismatch,
                 fmt::format("rank {} was built as '{}', rank 0 as '{}'", join.id, join.build, own_.build)};
  if (join.cpu_level != own_.cpu_level)
    return Error{Code::mismatch, fmt::format("rank {} runs at CPU level {}, rank 0 at {}: their sums would differ",
                                             join.id, join.cpu_level, own_.cpu_level)};
  return {};
}

/// A process that was here and is gone will not come again. Once all know the view, that is the view's affair.
void Gathering::lose(std::uint64_t rank) {
  auto& line = seats_.at(rank).line;
  loop_.unwatch(line.fd());
  line.close();
  conclude(Error{Code::peer_lost, fmt::format("rank {} ended before all were there", rank)});
  stop_if_said();
}

void Gathering::give_up() {
  std::vector<int> missing;
  for (int rank = 1; rank < launch_.size; ++rank)
    if (auto at = seats_.find(std::uint64_t(rank)); at == seats_.end() || !at->second.join) missing.push_back(rank);
  auto came = launch_.size - static_cast<int>(missing.size());
  auto more = missing.size() > kMostNamed ? fmt::format(" and {} more", missing.size() - kMostNamed) : "";
  bool one = missing.size() == 1;
  missing.resize(std::min(missing.size(), kMostNamed));
  conclude(Error{Code::not_found,
                 fmt::format("{} of {} processes came within {}: missing {} {}{}", came, launch_.size,
                             in_seconds(options_.patience), one ? "rank" : "ranks", fmt::join(missing, ", "), more)});
}

void Gathering::conclude(Result<View> outcome) {
  if (outcome_) return;
  note_.remove();  // before anybody hears: whoever comes next is of another meeting
  wire::Message word = wire::Refusal{outcome.error().message};
  if (outcome.ok()) word = membership::notice_of(outcome.value());
  outcome_ = std::move(outcome);
  for (const auto& [rank, seat] : seats_) say(rank, word);
  stop_if_said();
}

void Gathering::say(std::uint64_t rank, const wire::Message& word) {
  auto& line = seats_.at(rank).line;
  if (!line) return;
  if (auto sent = line.try_send(word); !sent.ok()) return lose(rank);
  loop_.want_writable(line.fd(), line.wants_to_write());
}

void Gathering::flush(std::uint64_t rank) {
  auto& line = seats_.at(rank).line;
  auto flushed = line.flush();
  if (!flushed.ok()) return lose(rank);
  loop_.want_writable(line.fd(), !flushed.value());
  stop_if_said();
}

void Gathering::stop_if_said() {
  if (outcome_ && std::ranges::none_of(seats_, [](const auto& entry) { return entry.second.line.wants_to_write(); }))
    loop_.stop();
}

/// As membership::Coordinator would make it. Processes of one host need no way to others.
Result<View> Gathering::first_view() const {
  View view{1, 1, options_.seed, 1, {{own_.id, own_.pid, own_.address, own_.host, own_.endpoint}}};
  for (const auto& [rank, seat] : seats_)
    view.members.push_back({rank, seat.join->pid, seat.join->address, seat.join->host, seat.join->endpoint});
  bool one_host = std::ranges::all_of(view.members, [&](const auto& member) { return member.host == own_.host; });
  auto only_here = [](const wire::Member& member) {
    auto endpoint = net::parse_endpoint(member.endpoint);
    return endpoint.ok() && net::is_loopback(endpoint.value().address);
  };
  for (auto& member : view.members) {
    if (one_host)
      member.host = member.endpoint = "";
    else if (only_here(member) != only_here(view.members.front()))
      return Error{Code::invalid, fmt::format("rank {} on {} is reached at {}, rank 0 at {}: PLIANT_INTERFACE names "
                                              "the network that all hosts share",
                                              member.id, member.host, member.endpoint, own_.endpoint)};
  }
  return view;
}

// ---- the others ----

/// Looks for rank 0, and waits for its word.
class Search {
 public:
  Search(const Launch& launch, const MeetOptions& options, wire::Join own, std::string note)
      : launch_(launch), options_(options), own_(std::move(own)), path_(std::move(note)) {}

  Result<Met> wait();

 private:
  void look();
  void called(Result<net::Guest> guest);
  void read();
  void hear(const wire::Message& message);
  void hang_up(const std::string& why);
  void end(Result<Met> outcome);

  const Launch& launch_;
  const MeetOptions& options_;
  const wire::Join own_;
  const std::string path_;
  SteadyClock clock_;
  const Nanos began_ = clock_.now();
  net::Loop loop_;
  std::string why_;           // rank 0 was not reached yet
  std::optional<Note> note_;  // of the last call
  std::unique_ptr<net::Call> call_;
  net::Line line_;
  bool welcome_ = false;
  std::optional<Result<Met>> outcome_;
};

Result<Met> Search::wait() {
  loop_.every(kBetweenLooks, [this] { look(); });
  loop_.run();
  return *outcome_;
}

void Search::look() {
  if (welcome_) return;
  if (clock_.now() - began_ >= options_.patience) {
    bool here = note_ && net::is_loopback(note_->endpoint.address);
    return end(
        Error{Code::not_found, fmt::format("rank 0 was not found within {}: {}{}", in_seconds(options_.patience), why_,
                                           here ? " (PLIANT_INTERFACE names the network that it is reached at)" : "")});
  }
  if (call_ || line_) return;
  auto note = read_note(path_);
  if (!note.ok() && note.error().code != Code::not_found) return end(note.error());
  if (!note.ok()) {
    why_ = "there is no " + path_ + " (all processes must see that directory, which is PLIANT_DIR)";
    return;
  }
  note_ = note.value();
  net::Introduction who{net::Purpose::coordinator, launch_.job, own_.id, 0, 0, 0};
  call_ = std::make_unique<net::Call>(loop_, note_->endpoint, "", note_->secret, who,
                                      [this](Result<net::Guest> guest) { called(std::move(guest)); });
}

/// A note that a crash has left leads to nobody, or to strangers: rank 0 will replace it.
void Search::called(Result<net::Guest> guest) {
  call_.reset();  // from within its own callback, which it allows
  if (!guest.ok()) {
    why_ = guest.error().message;
    return;
  }
  auto& there = guest.value();
  line_ = net::Line::remote(std::move(there.socket), std::move(there.rest), std::move(there.keys));
  loop_.watch(line_.fd(), [this] { read(); });
  if (auto sent = line_.try_send(own_); !sent.ok()) return hang_up(sent.error().message);
  read();
}

void Search::read() {
  while (line_ && !outcome_) {
    auto received = line_.receive();
    if (!received.ok()) return hang_up(received.error().message);
    if (!received.value()) return;
    hear(received.value()->message);
  }
}

void Search::hear(const wire::Message& message) {
  if (std::holds_alternative<wire::Answer>(message)) welcome_ = true;
  if (const auto* refusal = std::get_if<wire::Refusal>(&message)) end(Error{Code::refused, refusal->reason});
  if (const auto* notice = std::get_if<wire::ViewNotice>(&message)) {
    auto view = membership::view_from(*notice);
    if (view.ok() && view.value().rank_of(own_.id) == launch_.rank)
      end(Met{std::move(view).value(), note_->secret});
    else
      end(Error{Code::protocol, "rank 0 sent a view that this process has no place in"});
  }
}

/// Before rank 0 has heard of this process that is no loss: the handshake may have come too late for it.
void Search::hang_up(const std::string& why) {
  loop_.unwatch(line_.fd());
  line_.close();
  why_ = why;
  if (welcome_) end(Error{Code::peer_lost, "rank 0 ended before all were there: " + why});
}

void Search::end(Result<Met> outcome) {
  outcome_ = std::move(outcome);
  loop_.stop();
}

// ---- both ----

/// Without an interface that the user names, a host whose name leads nowhere is as good as alone.
Result<net::Listener> listen_for_others(const std::string& interface_name) {
  if (!interface_name.empty()) {
    auto address = net::address_of_interface(interface_name);
    return address.ok() ? net::tcp_listen(address.value(), {}) : address.error();
  }
  if (auto address = net::resolve(host_name()); address.ok() && !net::is_loopback(address.value()))
    if (auto listener = net::tcp_listen(address.value(), {}); listener.ok()) return listener;
  return net::tcp_listen("127.0.0.1", {});
}

Result<Met> gather(const Launch& launch, const MeetOptions& options, const wire::Join& own, const std::string& path) {
  auto endpoint = net::parse_endpoint(own.endpoint);
  if (!endpoint.ok()) return endpoint.error();
  auto door = net::tcp_listen(endpoint.value().address, {});
  if (!door.ok()) return door.error();
  Note note{door.value().endpoint, net::Secret::random()};
  auto posted = PostedNote::post(path, note);
  if (!posted.ok()) return posted.error();
  auto view =
      Gathering(launch, options, own, std::move(posted).value()).wait(std::move(door.value().socket), note.secret);
  if (!view.ok()) return view.error();
  return Met{std::move(view).value(), note.secret};
}

}  // namespace

Result<Meeting> meet(const Launch& launch, const MeetOptions& options) {
  auto path = note_path(options.dir, launch.job);
  if (!path.ok()) return path.error();
  auto road = listen_for_others(options.interface_name);
  if (!road.ok()) return road.error();
  wire::Join own;
  own.job = launch.job;
  own.id = static_cast<std::uint64_t>(launch.rank);
  own.pid = getpid();
  own.address = fmt::format("@pliant/{:016x}", random_u64());
  own.cpu_level = options.cpu_level;
  own.build = options.build;
  own.host = options.host;
  own.endpoint = road.value().endpoint.text();
  auto listener = net::listen_at(own.address);
  if (!listener.ok()) return listener.error();
  auto met =
      launch.rank == 0 ? gather(launch, options, own, path.value()) : Search(launch, options, own, path.value()).wait();
  if (!met.ok()) return met.error();
  Meeting meeting{std::move(met.value().view), std::move(listener).value(), {}};
  if (!meeting.view.members.front().host.empty())
    meeting.hosts.emplace(
        collective::HostsOptions{met.value().secret, std::move(road.value().socket), road.value().endpoint.address});
  return meeting;
}

}  // namespace pliant::session
