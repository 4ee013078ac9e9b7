#include "agent/reception.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/text.h"

namespace pliant::agent {
namespace {

/// Whoever hears it relies on it, whatever becomes of this coordinator: the answer to a request, that a worker's end
/// was heard of, how the job ended. All else is a fact, or nothing without the members' consent.
bool binds(const wire::Message& message) {
  return std::holds_alternative<wire::Answer>(message) || std::holds_alternative<wire::Parted>(message) ||
         std::holds_alternative<wire::Over>(message);
}

/// An answer of which the next coordinator would not know.
wire::Message unsure(const wire::Message& message) {
  auto answer = std::get<wire::Answer>(message);
  if (answer.ok)
    answer.text += "; the store does not answer, so that another coordinator would not know of this: ask again later";
  return answer;
}

}  // namespace

Reception::Reception(const Clock& clock, const membership::CoordinatorOptions& options,
                     const std::optional<membership::Memory>& memory, Desk& desk, Chronicle& chronicle)
    : clock_(clock),
      coordinator_(options, memory),
      desk_(desk),
      chronicle_(chronicle),
      most_strangers_(options.wanted + kSpareConnections) {}

bool Reception::anybody_placed() const {
  return std::ranges::any_of(places_, [](const auto& entry) { return entry.second.taken(); });
}

// ---- connections ----

void Reception::on_call(Link link, Caller caller) {
  make_room();
  places_[link] = {caller, clock_.now()};
}

/// Of too many connections without a place, the oldest stranger goes, or the oldest of all.
void Reception::make_room() {
  auto free = [](const auto& entry) { return !entry.second.taken(); };
  auto stranger = [&](const auto& entry) { return free(entry) && !desk_.owner_of(entry.second.caller.pid); };
  if (static_cast<std::size_t>(std::ranges::count_if(places_, free)) < most_strangers_) return;
  auto oldest = std::ranges::find_if(places_, stranger);
  if (oldest == places_.end()) oldest = std::ranges::find_if(places_, free);
  refuse(oldest->first, "too many connections that do not join");
}

void Reception::on_time() {
  deliver(coordinator_.on_time(clock_.now()));
  std::vector<Link> slow;
  for (const auto& [link, place] : places_) {
    auto age = clock_.now() - place.since;
    if (place.taken() || age <= kTimeToSpeak) continue;
    if (age > kWorkersTimeToJoin || !desk_.owner_of(place.caller.pid)) slow.push_back(link);
  }
  for (auto link : slow) {
    const auto& place = places_.at(link);
    refuse(link, place.request ? fmt::format("process {} does not belong to this job", place.caller.pid)
                               : "no request to join within the first seconds");
  }
}

void Reception::pulse() {
  std::vector<Link> far;
  for (const auto& [link, place] : places_)
    if (place.agent && place.caller.remote) far.push_back(link);
  for (auto link : far) send(link, wire::Pulse{});
}

void Reception::on_closed(Link link) {
  if (places_.erase(link)) deliver(coordinator_.on_closed(link));
}

void Reception::on_garbage(Link link, const std::string& what) {
  ++refused_;
  if (auto at = places_.find(link); at != places_.end())
    log::debug("coordinator: closed a connection of process {}: {}", at->second.caller.pid, what);
}

void Reception::refuse(Link link, const std::string& reason) {
  ++refused_;
  const auto& place = places_.at(link);
  log::debug("coordinator: refused process {}: {}", place.caller.pid, printable(reason));
  chronicle_.refused(place.worker, place.caller.pid, reason);
  send(link, wire::Refusal{reason});
  desk_.hang_up(link);
  on_closed(link);
}

// ---- what they say ----

void Reception::on_message(Link link, const wire::Message& message) {
  if (!places_.contains(link)) return;
  if (const auto* join = std::get_if<wire::Join>(&message)) return on_join(link, *join);
  if (const auto* hello = std::get_if<wire::AgentHello>(&message)) return on_hello(link, *hello);
  bool anybody_may = std::holds_alternative<wire::Resize>(message) || std::holds_alternative<wire::Replace>(message) ||
                     std::holds_alternative<wire::Stop>(message);
  if (!places_.at(link).taken() && !anybody_may) return refuse(link, "join first");
  if (const auto* ended = std::get_if<wire::Ended>(&message)) hear_last_words(ended->id);
  auto at = places_.find(link);
  if (at == places_.end()) return;
  bool from_agent = at->second.agent;
  bool is_ours = from_agent && !at->second.caller.remote;
  chronicle_.heard(at->second.worker, from_agent, message);
  deliver(coordinator_.on_message(link, message));
  if (const auto* started = std::get_if<wire::Started>(&message); started && is_ours) on_started(*started);
}

/// What a worker has said before its end comes before the word of its end.
void Reception::hear_last_words(std::uint64_t worker) {
  auto its = [&](const auto& entry) { return entry.second.worker == worker; };
  if (auto at = std::ranges::find_if(places_, its); at != places_.end()) desk_.hear(at->first);
}

void Reception::on_hello(Link link, const wire::AgentHello& hello) {
  auto& place = places_.at(link);
  bool remote = place.caller.remote.has_value();
  if (!remote && !desk_.is_agent(place.caller.pid))
    return refuse(link, fmt::format("process {} is not the agent of this job", place.caller.pid));
  if (remote && ((hello.host.empty() && hello.slots) || place.worker))
    return refuse(link, "only an agent that names its host may start workers");
  if (!std::exchange(place.agent, true)) {
    chronicle_.agent_came(place.caller.pid, hello.host);
    if (remote) send(link, wire::Charter{desk_.charter()});
  }
  deliver(coordinator_.on_message(link, hello));
}

void Reception::on_join(Link link, const wire::Join& join) {
  auto& place = places_.at(link);
  auto pid = place.caller.pid;
  if (place.taken()) return refuse(link, "this connection has joined already");
  if (place.caller.remote) {
    if (join.id != *place.caller.remote) return refuse(link, "it called in the name of another worker");
    return this->place(link, join);
  }
  if (join.pid != pid)
    return refuse(link, fmt::format("process {} may not join in the name of process {}", pid, join.pid));
  auto owner = desk_.owner_of(pid);
  if (owner && *owner != join.id)
    return refuse(link, fmt::format("process {} belongs to worker {}, not to worker {}", pid, *owner, join.id));
  if (!owner && desk_.knows(join.id)) return refuse(link, fmt::format("process {} does not belong to this job", pid));
  if (!owner) {
    place.request = join;
    return;
  }
  place.request.reset();
  desk_.watch(join.id, pid);
  this->place(link, join);
}

void Reception::place(Link link, const wire::Join& join) {
  places_.at(link).worker = join.id;
  log::debug("coordinator: worker {} joins (process {})", join.id, join.pid);
  auto letters = coordinator_.on_join(link, join);
  bool welcome = std::ranges::none_of(letters, [&](const auto& letter) {
    return letter.to == link && std::holds_alternative<wire::Refusal>(letter.message);
  });
  if (welcome) chronicle_.joined(join);
  deliver(letters);
}

void Reception::on_started(const wire::Started& started) {
  desk_.started(started.id, started.pid);
  std::vector<std::pair<Link, wire::Join>> waiting;
  for (const auto& [link, place] : places_)
    if (place.request) waiting.emplace_back(link, *place.request);
  for (const auto& [link, join] : waiting)
    if (places_.contains(link)) on_join(link, join);
}

void Reception::on_gone(std::uint64_t worker) {
  log::debug("coordinator: the process of worker {} is gone", worker);
  chronicle_.gone(worker);
  auto note = desk_.note_of(worker);
  deliver(coordinator_.on_gone(worker, note.last_word(false), note.view));  // whether by itself, its agent will say
}

// ---- what they hear ----

bool Reception::founds(const membership::Memory& memory) const {
  if (memory.view.members.empty()) return false;
  return !kept_ || kept_->view.members.empty() || kept_->view.restarts != memory.view.restarts;
}

void Reception::keep(const membership::Memory& memory) {
  if (kept_ == memory) return;
  desk_.remember(memory);
  // A view that was reported may hold workers that have not been heard of here.
  if (!kept_ || kept_->view.hash() != memory.view.hash())
    for (const auto& member : memory.view.members)
      if (member.host.empty()) desk_.know(member.id, member.pid);  // others are of other kernels, perhaps
  kept_ = memory;
}

void Reception::deliver(const membership::Letters& letters) {
  auto memory = coordinator_.memory();
  Batch held{next_batch_++, {}, founds(memory)};
  keep(memory);
  chronicle_.look_at(coordinator_);
  bool all = held.founds || std::ranges::any_of(batches_, &Batch::founds);
  for (const auto& letter : letters)
    if (all || binds(letter.message))
      held.letters.push_back(letter);
    else
      send_letter(letter, true);
  if (!held.letters.empty()) {
    auto number = held.number;
    batches_.push_back(std::move(held));
    ask(number);
  }
  if (!coordinator_.needs_checkpoint()) return;
  auto newest = desk_.newest_checkpoint();
  chronicle_.looked_for_checkpoint(newest);
  deliver(newest.ok() ? coordinator_.on_checkpoint(newest.value())
                      : coordinator_.on_checkpoint(std::nullopt, newest.error().message));
}

void Reception::ask(std::uint64_t number) {
  desk_.once_sure([this, number](bool sure) { decide(number, sure); });
}

/// An agent that was told Parted never tells of that end again: a Parted that is not sure is kept back and asked for
/// anew.
void Reception::decide(std::uint64_t number, bool sure) {
  auto at = std::ranges::find(batches_, number, &Batch::number);
  if (at == batches_.end()) return;
  if (!sure && at->founds) return ask(number);
  at->fate = sure ? Batch::Fate::sure : Batch::Fate::unsure;
  if (!sure) {
    Batch later{next_batch_++};
    for (const auto& letter : at->letters)
      if (std::holds_alternative<wire::Parted>(letter.message)) later.letters.push_back(letter);
    std::erase_if(at->letters, [](const auto& letter) { return std::holds_alternative<wire::Parted>(letter.message); });
    if (!later.letters.empty()) {
      batches_.push_back(later);
      ask(later.number);
    }
  }
  send_what_may_go();
}

/// Whatever follows the beginning of a lineage waits for it.
void Reception::send_what_may_go() {
  auto may_go = [](const Batch& batch) { return batch.founds || batch.fate != Batch::Fate::open; };
  for (;;) {
    auto at = std::ranges::find_if(batches_, may_go);
    if (at == batches_.end() || at->fate == Batch::Fate::open) return;
    auto batch = std::move(*at);
    at = batches_.erase(at);
    auto freed = batch.founds ? take_what_waited(at) : membership::Letters();
    for (const auto& letter : batch.letters) send_letter(letter, batch.fate == Batch::Fate::sure);
    for (const auto& letter : freed) send_letter(letter, true);
  }
}

/// What binds nobody was held back only because of the beginning before it. It goes before all that is yet to be said.
membership::Letters Reception::take_what_waited(std::deque<Batch>::iterator at) {
  membership::Letters freed;
  for (; at != batches_.end() && !at->founds; ++at) {
    auto& letters = at->letters;
    auto first =
        std::stable_partition(letters.begin(), letters.end(), [](const auto& letter) { return binds(letter.message); });
    std::move(first, letters.end(), std::back_inserter(freed));
    letters.erase(first, letters.end());
  }
  return freed;
}

void Reception::send_letter(const membership::Outgoing& letter, bool sure) {
  if (const auto* refusal = std::get_if<wire::Refusal>(&letter.message)) {
    if (places_.contains(letter.to)) refuse(letter.to, refusal->reason);
    return;
  }
  bool is_answer = std::holds_alternative<wire::Answer>(letter.message);
  send(letter.to, is_answer && !sure ? unsure(letter.message) : letter.message);
}

void Reception::send(Link link, const wire::Message& message) {
  auto at = places_.find(link);
  if (at == places_.end()) return;
  chronicle_.says(at->second.worker, message);
  desk_.send(link, message);
}

}  // namespace pliant::agent
