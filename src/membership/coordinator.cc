#include "membership/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/planted.h"

namespace pliant::membership {

bool Memory::operator==(const Memory& other) const {
  return view.hash() == other.view.hash() && wanted == other.wanted && spare == other.spare &&
         next_id == other.next_id && restarts == other.restarts && stopping == other.stopping &&
         outcomes == other.outcomes && ended == other.ended && invited == other.invited && hosts == other.hosts &&
         said == other.said;
}

Coordinator::Coordinator(CoordinatorOptions options, const std::optional<Memory>& memory)
    : options_(std::move(options)), wanted_(options_.wanted), restarts_(options_.restarts) {
  if (!options_.checkpoints) {
    rescue_ = Rescue::impossible;
    no_rescue_ = "with --checkpoint it would have gone on from its last checkpoint";
  }
  if (!memory) return;
  wanted_ = memory->wanted;
  restarts_ = memory->restarts;
  next_id_ = memory->next_id;
  stopping_ = memory->stopping;
  learn(memory->view);
  for (const auto& [id, outcome] : memory->outcomes) workers_[id].outcome = outcome;
  for (const auto& [id, last_view] : memory->ended) {
    auto& worker = workers_[id];
    note_end(id, worker);
    worker.counted = true;
    worker.last_view = last_view;
  }
  for (const auto& [id, host] : memory->invited) {
    workers_[id].invited = true;
    workers_[id].self.host = workers_[id].host = host;
  }
  for (const auto& host : memory->hosts) agents_.try_emplace(host);
  said_ = memory->said;
}

Memory Coordinator::memory() const {
  auto spare =
      std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) { return is_there(entry.second); });
  if (formed()) spare = static_cast<std::ptrdiff_t>(waiting().size());
  Memory memory{view_, wanted_, static_cast<std::uint32_t>(spare), next_id_, restarts_, stopping_};
  for (const auto& [id, worker] : workers_) {
    // A worker outside of the view that has not ended may go on to another loop; if not, its agent will say so.
    bool counts = was_last(id) || (worker.outcome == Outcome::finished && has_ended(worker));
    if (counts && worker.outcome != Outcome::running) memory.outcomes[id] = worker.outcome;
    if (counts && has_ended(worker)) memory.ended[id] = worker.last_view.epoch;
    if (worker.invited && !worker.ended && !in_view(id)) memory.invited.emplace(id, worker.self.host);
  }
  for (const auto& [host, agent] : agents_) memory.hosts.insert(host);
  memory.said = said_;
  return memory;
}

std::optional<std::uint64_t> Coordinator::worker_at(Link link) const {
  for (const auto& [id, worker] : workers_)
    if (worker.link == link) return id;
  return std::nullopt;
}

void Coordinator::send(Link link, wire::Message message) {
  if (link) outbox_.push_back({link, std::move(message)});
}

void Coordinator::send_to(std::uint64_t id, wire::Message message) {
  if (auto at = workers_.find(id); at != workers_.end()) send(at->second.link, std::move(message));
}

// ---- workers come ----

std::string Coordinator::objection_to(const wire::Join& join) const {
  if (join.job != options_.job) return fmt::format("this is job '{}', not '{}'", options_.job, join.job);
  if (is_hopeless()) return said_->reason;
  auto at = workers_.find(join.id);
  bool known = at != workers_.end();
  if (known ? at->second.ended : former_.contains(join.id))
    return fmt::format("worker {} has ended; its number is not used again", join.id);
  if (known && at->second.link && at->second.self.pid != join.pid)
    return fmt::format("worker {} has joined already", join.id);
  if (model_ && model_->build != join.build)
    return fmt::format("worker {} was built as '{}', worker {} as '{}'", join.id, join.build, model_->id,
                       model_->build);
  if (model_ && model_->cpu_level != join.cpu_level)
    return fmt::format("worker {} runs at CPU level {}, worker {} at {}: their sums would differ", join.id,
                       join.cpu_level, model_->id, model_->cpu_level);
  return objection_to(join.id, join.layout);
}

std::string Coordinator::objection_to(std::uint64_t id, const std::string& layout) const {
  if (layout_.text.empty() || layout.empty() || layout == layout_.text) return {};
  auto part = [](const std::string& text) { return text.substr(0, wire::kMaxText / 3); };
  return fmt::format("worker {} shares other state than worker {}: {}; not {}", id, layout_.told_by, part(layout),
                     part(layout_.text));
}

Letters Coordinator::on_join(Link link, const wire::Join& join) {
  auto reason = objection_to(join);
  if (!reason.empty()) {
    send(link, wire::Refusal{reason});
    return act();
  }
  take_up(join, link);
  auto term = term_;
  if (auto view = view_from(join.view); view.ok()) learn(view.value());
  if (!formed()) return act();
  send(link, notice_of(view_));
  tell_deaths_to(join.id);
  if (in_view(join.id) && !leading_ && term == term_) send(link, wire::Claim{term_, 0});
  if (plan_ && (in_view(join.id) || is_planned(join.id))) send(link, *plan_);
  return act();
}

void Coordinator::take_up(const wire::Join& join, Link link) {
  if (!model_) model_ = join;
  auto& worker = workers_[join.id];
  worker.link = link;
  worker.self = {join.id, join.pid, join.address, join.host, join.endpoint};
  worker.joined = true;
  worker.told = false;
  worker.layout = join.layout;
  // Whoever is in no view and knows its layout has begun its loop, and waits.
  note_ready(join.id, join.view.epoch == 0 && !join.layout.empty(), join.knows);
  worker.view = std::max(worker.view, join.view.epoch);
  if (join.view.epoch > 0) know_layout(join.id, join.layout);
  next_id_ = std::max(next_id_, join.id + 1);
}

/// The first member that says it is heard. Members that differ find out among themselves.
void Coordinator::know_layout(std::uint64_t member, const std::string& layout) {
  if (layout_.text.empty()) layout_ = {layout, member};
}

std::uint32_t Coordinator::needed_to_form() const {
  return std::min(options_.start ? options_.start : options_.wanted, wanted_);
}

void Coordinator::form_first_view() {
  if (formed() || is_hopeless()) return;
  View first;
  first.term = first.epoch = first.planned = 1;
  first.seed = options_.seed;
  for (const auto& [id, worker] : workers_)
    if (is_there(worker)) first.members.push_back(worker.self);
  if (first.members.size() < needed_to_form()) return;
  term_ = 1;
  leading_ = true;
  learn(first);
  for (const auto& member : first.members) send_to(member.id, notice_of(view_));
}

/// Nobody has state any more, and there is a checkpoint: those who are ready begin with it.
void Coordinator::begin_again() {
  if (!lost() || rescue_ != Rescue::possible) return;
  auto ids = ready();
  if (ids.empty()) return;
  auto next = view_;
  next.term = term_ = std::max(term_, view_.term) + 1;
  // Views that nobody reported here, because nobody is left of them, have had their numbers.
  next.epoch = std::max(view_.epoch, newest_of_the_dead());
  for (const auto& [id, worker] : workers_) next.epoch = std::max(next.epoch, worker.knows);
  next.planned = ++next.epoch;
  ++next.restarts;
  next.resume_step = resume_step_;
  next.members.clear();
  next.newcomers.clear();  // they were to get their state from those who are lost
  for (auto id : ids)
    if (next.members.size() < wanted_) next.members.push_back(workers_.at(id).self);
  leading_ = true;
  promised_.clear();
  learn(next);
  for (const auto& member : next.members) {
    workers_.at(member.id).ready = false;  // also of one that has been in the view before
    send_to(member.id, notice_of(view_));
  }
}

void Coordinator::on(Link link, const wire::Ready& ready) {
  auto id = worker_at(link);
  if (!id) return;
  if (auto reason = objection_to(*id, ready.layout); !reason.empty()) return send(link, wire::Refusal{reason});
  workers_[*id].layout = ready.layout;
  note_ready(*id, true, ready.view);
}

/// It waits to be taken in, it says, and knows of no view after the one with the epoch `knows`.
void Coordinator::note_ready(std::uint64_t id, bool waits, std::uint64_t knows) {
  bool outdated = in_view(id) && knows < view_.epoch;  // it has been taken in meanwhile, and will hear of that
  workers_.at(id).ready = waits && !outdated;
  workers_.at(id).knows = knows;
}

void Coordinator::on(Link link, const wire::Shares& shares) {
  if (auto id = worker_at(link); id && in_view(*id)) know_layout(*id, shares.layout);
}

// ---- views ----

void Coordinator::learn(const View& view) {
  if (std::tuple(view.epoch, view.term) <= std::tuple(view_.epoch, view_.term)) return;
  for (const auto& member : view.members) {
    auto& worker = file_of(member.id);
    worker.self = member;
    worker.served = true;
    if (!in_view(member.id)) worker.ready = false;  // what it said before it was taken in
    know_layout(member.id, worker.layout);
    next_id_ = std::max(next_id_, member.id + 1);
  }
  auto outdated = view.planned > view_.planned ? who_must_ask_again(view) : std::vector<std::uint64_t>();
  auto before = std::exchange(view_, view);
  for (auto id : outdated) send_to(id, notice_of(view_));
  for (const auto& member : before.members)  // whom the others could not reach, they could not tell
    if (!in_view(member.id)) send_to(member.id, notice_of(view_));
  for (const auto& member : view_.members)  // whoever comes with it has not heard who of it has died
    if (before.rank_of(member.id) < 0) tell_deaths_to(member.id);
  for (auto& [id, worker] : workers_)  // of most of them nobody will ask more than whether they have ended
    if (worker.ended && !in_view(id)) worker.layout = worker.words = std::string();
  plan_.reset();
  if (options_.checkpoints) rescue_ = Rescue::open;
  for (auto& [host, agent] : agents_) agent.told_over = false;
  said_.reset();
  if (view_.term > term_ || !leading_) claim_above(view_.term);
}

/// A plan has come true, and `view` is what is left of it. Whoever was invited and is not in it may have been taken in
/// and lost at once, and not know that yet: it would come back with what it had then.
std::vector<std::uint64_t> Coordinator::who_must_ask_again(const View& view) {
  std::vector<std::uint64_t> ids;
  for (auto& [id, worker] : workers_) {
    if (!worker.invited || !worker.ready || view.rank_of(id) >= 0) continue;
    worker.ready = false;
    ids.push_back(id);
  }
  return ids;
}

void Coordinator::claim_above(std::uint64_t term) {
  term_ = std::max(term, term_) + 1;
  leading_ = false;
  promised_.clear();
  plan_.reset();
  for (const auto& member : view_.members) send_to(member.id, wire::Claim{term_, 0});
}

bool Coordinator::promised_by_enough() const {
  std::size_t votes = 0;
  auto lowest = UINT64_MAX;
  for (const auto& member : view_.members) {
    votes += promised_.contains(member.id);
    lowest = std::min(lowest, member.id);
  }
  auto all = view_.members.size();
  return votes * 2 > all || (votes * 2 == all && promised_.contains(lowest));
}

void Coordinator::on(Link link, const wire::Adopted& adopted) {
  auto id = worker_at(link);
  auto view = view_from(adopted.view);
  if (!id || !view.ok() || view.value().rank_of(*id) < 0) return;
  workers_[*id].view = std::max(workers_[*id].view, view.value().epoch);
  auto term = term_;
  learn(view.value());
  if (!in_view(*id)) send(link, notice_of(view_));  // that one is over
  // It may have declined the claim, because it had not heard yet that the view is in force.
  bool asked = leading_ || promised_.contains(*id) || term != term_ || planted("claimed-once");
  if (in_view(*id) && !asked) send(link, wire::Claim{term_, 0});
  if (plan_ && view.value().hash() == plan_->base) send(link, *plan_);  // it may have come too early
}

/// What a worker answers to a claim says which view is the newest that it knows.
void Coordinator::hear_view(std::uint64_t id, const wire::ViewNotice& notice) {
  auto view = view_from(notice);
  auto& worker = workers_.at(id);
  worker.answered = true;
  if (!view.ok()) return;
  if (view.value().rank_of(id) >= 0) worker.view = std::max(worker.view, view.value().epoch);
  learn(view.value());
}

void Coordinator::on(Link link, const wire::Promise& promise) {
  auto id = worker_at(link);
  if (!id) return;
  hear_view(*id, promise.view);
  if (promise.term != term_) return;
  promised_.insert(*id);
  leading_ = leading_ || promised_by_enough();
}

void Coordinator::on(Link link, const wire::Decline& decline) {
  auto id = worker_at(link);
  if (!id) return;
  hear_view(*id, decline.view);
  if (decline.term >= term_ && formed()) claim_above(decline.term);
}

// ---- after every event ----

Letters Coordinator::on_time(Nanos now) {
  now_ = now;
  return act();
}

Letters Coordinator::on_message(Link link, const wire::Message& message) {
  std::visit([&](const auto& kind) { on(link, kind); }, message);
  return act();
}

Letters Coordinator::act() {
  look_for_the_end();
  form_first_view();
  refuse_to_begin();
  begin_again();
  lower_wanted();
  tell_over();
  plan();
  dismiss_idle();
  let_go();
  start_workers();
  forget();
  tell_agents();
  return std::exchange(outbox_, {});
}

}  // namespace pliant::membership
