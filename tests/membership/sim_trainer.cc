#include "membership/sim_trainer.h"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::membership::sim {
namespace {

constexpr Nanos kSilence = milliseconds(300);

}  // namespace

Trainer::Trainer(Surroundings& world, Id id, const View& first, Mutation mutation)
    : world_(world),
      id_(id),
      mutation_(mutation),
      machine_(id, first, mutation, world.has_store()),
      blank_(first.members.empty()) {}

void Trainer::start() {
  if (!blank_) enter(member().view());
}

// ---- what comes in ----

void Trainer::receive(Id from, const Payload& payload) {
  heard_[from] = world_.now();
  std::visit([&](const auto& message) { on(from, message); }, payload);
}

void Trainer::lost(Id id, bool proven) { obey(machine_.on_lost(id, proven, world_.now())); }

void Trainer::decided(const View& view) { obey(machine_.on_decided(view, world_.now())); }

void Trainer::on(Id from, const Agreement& message) { obey(machine_.on_message(from, message, world_.now())); }

void Trainer::on(Id from, const Row& row) {
  rows_[{row.view, row.step}][from] = row;
  complete_if_heard();
}

void Trainer::on(Id from, const Entered& news) {
  const auto hash = news.view.hash();
  heard_reports_[hash][from] = news.report;
  if (hash != hash_) obey(machine_.on_message(from, wire::InForce{news.view.term, notice_of(news.view)}, world_.now()));
  settle_if_heard();
  const int rank = view_.rank_of(from);
  if (hash == hash_ && settled_ && rank >= 0 && phase_ != Phase::fenced) give_to(static_cast<std::size_t>(rank));
}

void Trainer::on(Id from, const Confirm& word) {
  confirms_[{word.view, word.step}].insert(from);
  close_if_confirmed();
}

void Trainer::on(Id, const StateCopy& gift) {
  copies_[gift.view] = gift;
  if (gift.view == hash_ && phase_ == Phase::receiving) carry_out();
}

/// Whoever is in an older view and not in ours finds its connection closed.
void Trainer::on(Id from, const Heartbeat& beat) {
  const auto& mine = member().view();
  if (beat.epoch < mine.epoch && mine.rank_of(from) < 0)
    world_.send(id_, from, std::make_shared<const Payload>(Reset{}));
}

void Trainer::wake(std::uint64_t alarm) {
  if (alarm != alarm_) return;
  if (phase_ == Phase::computing) {
    submit();
  } else if (phase_ == Phase::applying) {
    commit(complete_);
    after_commit();
  }
}

// ---- what the machine asks for ----

void Trainer::obey(const Decision& decision) {
  if (decision.fence) fence();
  for (const auto& letter : decision.letters)
    world_.send(id_, letter.to, std::make_shared<const Payload>(letter.message));
  if (decision.ask) world_.ask_store(id_, *decision.ask);
  if (decision.evicted) leave();
  if (decision.enter) enter(*decision.enter);
}

/// Rows of this view complete nothing any more. A step that is complete, or was begun, is settled in the next view.
void Trainer::fence() {
  if (phase_ == Phase::outside || phase_ == Phase::gone) return;
  phase_ = Phase::fenced;
  ++alarm_;
}

void Trainer::leave() {
  phase_ = Phase::gone;
  ++alarm_;
  world_.left(id_);
}

void Trainer::enter(const View& view) {
  if (world_.tracing()) world_.note(id_, "enters " + text_of(view));
  world_.checker().entered(id_, view);
  former_ = std::exchange(view_, view);
  hash_ = view_.hash();
  phase_ = Phase::reporting;
  ++alarm_;
  settled_ = worked_ = false;
  sent_.clear();
  confirmed_.clear();
  for (const auto& member : view_.members) heard_[member.id] = world_.now();
  mine_ = report();
  heard_reports_[hash_][id_] = mine_;
  say_to_all(view_, Entered{view_, mine_});
  settle_if_heard();
}

// ---- the way into a view ----

Report Trainer::report() const {
  return {blank_, log_.size(), in_step_, complete_ != nullptr, closed_, 7, blank_ ? 0 : digest_};
}

void Trainer::settle_if_heard() {
  if (phase_ != Phase::reporting) return;
  const auto& heard = heard_reports_[hash_];
  reports_.clear();
  for (const auto& member : view_.members) {
    const auto at = heard.find(member.id);
    if (at == heard.end()) return;
    reports_.push_back(at->second);
  }
  verdict_ = settle(reports_);
  if (!verdict_.contradiction.empty()) return world_.checker().fail(id_, verdict_.contradiction);
  if (std::ranges::all_of(reports_, &Report::blank)) return world_.job_lost();
  settled_ = true;
  carry_out();
}

/// Goes as far as it can; called again when something arrives.
void Trainer::carry_out() {
  phase_ = Phase::receiving;
  if (blank_ && !receive_state()) return;
  if (log_.size() < verdict_.step) {
    if (complete_ == nullptr) return world_.checker().fail(id_, "has to commit what it does not have");
    commit(complete_);
  }
  complete_.reset();
  std::size_t shared = log_.size();
  for (const auto& report : reports_)
    if (!report.blank) shared = std::min<std::size_t>(shared, report.step);
  mark_stable(shared);
  give();
  resume();
}

bool Trainer::receive_state() {
  const auto copy = copies_.find(hash_);
  if (copy == copies_.end()) return false;
  log_ = copy->second.log;
  ledger_ = copy->second.ledger;
  blank_ = false;
  machine_.set_holds();
  world_.checker().stable(id_, log_, 0, copy->second.stable);
  stable_ = copy->second.stable;
  digest_ = 1;
  for (const auto& entry : log_) digest_ = combine(digest_, entry->view);
  return true;
}

void Trainer::give() {
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) give_to(rank);
}

/// Sends what the verdict says that this member owes to that rank, as soon as it has it.
void Trainer::give_to(std::size_t rank) {
  const auto mine = view_.rank_of(id_);
  const auto to = view_.members[rank].id;
  const auto& report = reports_[rank];
  if (log_.size() < verdict_.step || blank_ || to == id_ || worked_) return;
  const Log upto(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(verdict_.step));
  if (mine == verdict_.state_from && report.blank)
    world_.send(id_, to, std::make_shared<const Payload>(StateCopy{hash_, upto, ledger_, stable_}));
}

void Trainer::resume() {
  if (!verdict_.begun) return begin_step();
  if (!in_step_) contributes_ = false, leased_.reset();
  in_step_ = true;
  phase_ = Phase::computing;
  set_alarm(world_.rng().between(Nanos(0), milliseconds(5)));
}

// ---- steps ----

void Trainer::begin_step() {
  phase_ = Phase::computing;
  in_step_ = contributes_ = true;
  leased_ = ledger_.lease(view_.rank_of(id_));
  set_alarm(world_.rng().between(milliseconds(1), milliseconds(12)));
}

void Trainer::submit() {
  phase_ = Phase::exchanging;
  announced_ = member().plan();
  Row row{hash_,
          log_.size(),
          {announced_ ? announced_->hash() : 0, leaves_ ? Leaving::yes : Leaving::no},
          contributes_,
          leased_};
  rows_[{hash_, row.step}][id_] = row;
  sent_.push_back(row);
  if (sent_.size() > 2) sent_.pop_front();
  say_to_all(view_, row);
  complete_if_heard();
}

void Trainer::complete_if_heard() {
  if (phase_ != Phase::exchanging) return;
  const auto& rows = rows_[{hash_, log_.size()}];
  outlooks_.clear();
  for (const auto& member : view_.members) {
    const auto row = rows.find(member.id);
    if (row == rows.end()) return;
    outlooks_.push_back(row->second.outlook);
  }
  complete_ = entry_of(mutation_ == Mutation::none ? rows : counted(rows));
  phase_ = Phase::confirming;
  Confirm word{hash_, log_.size()};
  confirms_[{word.view, word.step}].insert(id_);
  confirmed_.push_back(word);
  if (confirmed_.size() > 2) confirmed_.pop_front();
  say_to_all(view_, word);
  close_if_confirmed();
}

void Trainer::close_if_confirmed() {
  if (phase_ != Phase::confirming) return;
  const auto& heard = confirms_[{hash_, log_.size()}];
  const bool all = std::ranges::all_of(view_.members, [&](const auto& member) { return heard.contains(member.id); });
  if (!all && mutation_ != Mutation::unconfirmed) return;
  closed_ = worked_ = true;
  world_.checker().completed(id_, view_, *complete_);
  mark_stable(log_.size());
  phase_ = Phase::applying;
  set_alarm(world_.rng().between(Nanos(0), milliseconds(1)));
}

/// The rows that count for a step: those of its view, unless done wrong.
Trainer::Rows Trainer::counted(const Rows& rows) const {
  Rows all = rows;
  for (const auto& [key, others] : rows_) {
    if (key.second != log_.size()) continue;
    if (mutation_ == Mutation::mixed) all.insert(others.begin(), others.end());
    const bool whole = key.first == former_.hash() && others.size() == former_.members.size();
    if (mutation_ == Mutation::no_fence && whole) all = others;
  }
  return all;
}

std::shared_ptr<const Entry> Trainer::entry_of(const Rows& rows) const {
  auto entry = std::make_shared<Entry>();
  entry->step = log_.size();
  entry->view = rows.begin()->second.view;
  for (const auto& [id, row] : rows) {
    if (!row.contributes) continue;
    if ((entry->samples & row.samples).any()) world_.checker().fail(id_, "two contributors of a step share samples");
    entry->contributors.push_back(id);
    entry->samples |= row.samples;
  }
  return entry;
}

void Trainer::commit(std::shared_ptr<const Entry> entry) {
  if (entry->step != log_.size())
    return world_.checker().fail(id_, fmt::format("commits step {} after {}", entry->step, log_.size()));
  if (!ledger_.consume(entry->samples))
    world_.checker().fail(id_, fmt::format("step {} consumes samples a second time", entry->step));
  digest_ = combine(digest_, entry->view);
  world_.checker().committed(id_, *entry);
  log_.push_back(std::move(entry));
  complete_.reset();
  closed_ = in_step_ = false;
  std::erase_if(rows_, [&](const auto& known) { return known.first.second + 1 < log_.size(); });
  std::erase_if(confirms_, [&](const auto& known) { return known.first.second + 1 < log_.size(); });
}

void Trainer::after_commit() {
  const auto next = next_view(view_, outlooks_, announced_);
  if (!next || member().recovering()) return begin_step();
  phase_ = Phase::switching;
  obey(machine_.adopt(*next, world_.now()));
}

void Trainer::mark_stable(std::size_t steps) {
  if (steps <= stable_) return;
  world_.checker().stable(id_, log_, stable_, steps);
  stable_ = steps;
}

// ---- time ----

void Trainer::tick() {
  if (phase_ == Phase::gone) return;
  obey(machine_.on_time(world_.now()));
  const auto& known = member().view();
  for (auto coordinator : world_.coordinators()) {
    if (phase_ == Phase::outside)
      world_.send(id_, coordinator, std::make_shared<const Payload>(Wish{}));
    else
      world_.send(id_, coordinator, std::make_shared<const Payload>(wire::Adopted{notice_of(known), log_.size()}));
  }
  if (!world_.lossy() || phase_ == Phase::gone) return;
  say_to_all(known, Heartbeat{known.epoch});
  say_again();
  suspect_the_silent();
}

void Trainer::say_again() {
  if (phase_ == Phase::outside || phase_ == Phase::fenced) return;
  if (!worked_) say_to_all(view_, Entered{view_, mine_});
  for (const auto& row : sent_) say_to_all(view_, row);
  for (const auto& word : confirmed_) say_to_all(view_, word);
}

void Trainer::suspect_the_silent() {
  const auto members = member().view().members;
  for (const auto& other : members) {
    if (phase_ == Phase::gone || other.id == id_ || member().is_lost(other.id)) continue;
    const auto [heard, is_new] = heard_.try_emplace(other.id, world_.now());
    if (world_.now() - heard->second > kSilence) lost(other.id, false);
  }
}

void Trainer::say_to_all(const View& view, Payload payload) {
  const auto packet = std::make_shared<const Payload>(std::move(payload));
  for (const auto& member : view.members)
    if (member.id != id_) world_.send(id_, member.id, packet);
}

}  // namespace pliant::membership::sim
