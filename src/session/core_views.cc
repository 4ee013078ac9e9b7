// Core's second half: reductions that survive the loss of workers, and the way from one view to the next.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system.h"
#include "collective/kernels.h"
#include "session/core.h"

namespace pliant::session {
namespace {

using membership::Report;
using membership::Verdict;
using membership::View;

/// Digests as rows that members exchange.
std::uint64_t digest_in(const std::string& row) { return std::strtoull(row.c_str(), nullptr, 16); }

std::string deviants_in(const std::vector<std::string>& rows) {
  std::vector<std::uint64_t> digests;
  for (const auto& row : rows) digests.push_back(digest_in(row));
  return deviants(digests);
}

}  // namespace

// ---- reductions ----

AreaPtr Core::area(const std::string& name, std::size_t bytes) {
  if (auto known = areas_[name].lock()) {
    if (known->bytes != bytes) throw Failure(Code::invalid, fmt::format("region '{}' exists already", name));
    return known;
  }
  auto made = std::make_shared<Area>(Area{name, bytes, group_->create_region(name, bytes).or_throw()});
  areas_[name] = made;
  return made;
}

TicketPtr Core::submit(Task task) {
  auto ticket = std::make_shared<Ticket>(std::move(task));
  ticket->number_ = number_of(ticket->task().name);
  const auto& wanted = ticket->task();
  if (!wanted.area && wanted.in == wanted.out && wanted.in && group_->size() > 1) {
    const auto* from = static_cast<const std::byte*>(wanted.in);
    ticket->input_.assign(from, from + wanted.count * size_of(wanted.dtype));
  }
  start_operation(*ticket);
  tickets_.push_back(ticket);
  return ticket;
}

void Core::start_operation(Ticket& ticket) {
  const auto& task = ticket.task_;
  ticket.done_ = false;
  ticket.region_ = task.area ? task.area->region : nullptr;
  ticket.operation_ = group_
                          ->submit({.name = task.name,
                                    .dtype = task.dtype,
                                    .op = task.op,
                                    .count = task.count,
                                    .region = ticket.region_,
                                    .offset = task.offset,
                                    .in = task.in,
                                    .out = task.out,
                                    .weight = task.weight,
                                    .measure = task.measure,
                                    .marks = task.marks,
                                    .confirmed_later = task.with_step,
                                    .caller_waits = task.caller_waits})
                          .or_throw();
}

void Core::await_successor(const Error& error) {
  if (error.code != Code::peer_lost || !roster_) throw Failure(error.code, error.message);
  roster_->give_up_on_departed();
  auto began = clock_.now();
  roster_->await_next();
  stalled_ += clock_.now() - began;
}

void Core::go_on_after(const Error& error) {
  await_successor(error);
  enter_next();
}

/// The same on all workers for what is the same.
std::uint64_t Core::number_of(const std::string& name) {
  return combine(combine(hash_name(name), step_), uses_[name]++);
}

void Core::wait(const TicketPtr& ticket) {
  auto began = clock_.now();
  auto stalled = stalled_;
  while (!ticket->done_) {
    auto waited = group_->wait(ticket->operation_);
    if (waited.ok())
      ticket->done_ = true;
    else
      go_on_after(waited.error());
  }
  if (in_step_ && !closed_) exposed_ += clock_.now() - began - (stalled_ - stalled);
  if (in_step_ && !closed_ && ticket->task().op == Op::weighted_mean && !ticket->task().with_step) delivered_ = true;
  if (!ticket->task().with_step) std::erase(tickets_, ticket);
}

Core::Rows Core::exchange_surely(const std::function<std::string()>& row) {
  exchange_ = number_of("~rows");
  for (exchange_settled_ = false; !exchange_settled_;) {
    held_rows_.reset();
    auto rows = group_->exchange(row());
    if (rows.ok()) held_rows_ = rows.value();
    auto status = rows.ok() ? group_->confirm() : Status(rows.error());
    if (status.ok()) break;
    go_on_after(status.error());
  }
  exchange_.reset();
  return *std::exchange(held_rows_, std::nullopt);
}

double Core::average(const std::string& name, double value, double weight) {
  double sums[2] = {weight > 0 ? value * weight : 0, weight};
  wait(submit({.name = "~average/" + name,
               .dtype = Dtype::f64,
               .op = Op::sum,
               .count = 2,
               .in = sums,
               .out = sums,
               .caller_waits = true}));
  return sums[1] > 0 ? sums[0] / sums[1] : std::nan("");
}

std::string Core::own_digest() const { return fmt::format("{:016x}", replicas_.digest()); }

std::uint64_t Core::digest() {
  auto own = own_digest();
  auto text = deviants_in(exchange_surely([&] { return own; }));
  if (!text.empty()) throw Failure(Code::diverged, "replicas are not identical: " + text);
  return digest_in(own);
}

void Core::leave() {
  if (roster_) roster_->say_goodbye();
}

void Core::resize(int workers) {
  if (workers < 1) throw Failure(Code::invalid, "a job needs at least one worker");
  if (roster_ && rank() == 0) roster_->ask_for(static_cast<std::uint32_t>(workers));
}

// ---- from view to view ----

Report Core::standing() const {
  Report own;
  own.blank = blank_;
  own.step = step_;
  own.in_step = in_step_;
  own.complete = closed_ || step_held_;
  own.closed = closed_;
  own.layout = replicas_.layout();
  return own;
}

Status Core::try_enter(const View& view, std::unique_ptr<collective::Group>& entered) {
  int rank = view.rank_of(self_);
  collective::Team team{roster_ ? roster_->job() : "", view.hash(), view.members, rank, membership::notice_of(view)};
  if (roster_) {
    team.has_ended = [this] { return roster_->must_change(); };
    roster_->took(view);
  }
  auto formed = collective::Group::form(std::move(team), roster_ ? &roster_->mesh() : nullptr);
  if (!formed.ok()) return formed.error();
  auto group = std::move(formed).value();
  if (roster_) roster_->guard(group.get());
  auto settled = started_ ? settle_in(*group) : Status();
  if (settled.ok())
    entered = std::move(group);
  else if (roster_)
    roster_->guard(nullptr);
  return settled;
}

Status Core::settle_in(collective::Group& group) {
  Arrival own{standing(), replicas_.describe(), {}};
  for (const auto& ticket : tickets_)
    if (!ticket->task().with_step && !ticket->done_ && !ticket->held_) own.missing.push_back(ticket->number_);
  if (exchange_ && !held_rows_) own.missing.push_back(*exchange_);
  auto rows = group.exchange(encode(own));
  if (!rows.ok()) return rows.error();
  settled_ = {};
  std::vector<Report> reports;
  for (std::size_t rank = 0; rank < rows.value().size(); ++rank) {
    auto arrival = decode_arrival(rows.value()[rank]);
    if (!arrival.ok()) return arrival.error();
    reports.push_back(arrival.value().report);
    settled_.missing.insert(arrival.value().missing.begin(), arrival.value().missing.end());
    if (reports.back().layout == reports.front().layout) continue;
    auto why = fmt::format("workers share different state: rank {} has {}, rank 0 has {}", rank, arrival.value().words,
                           decode_arrival(rows.value()[0]).or_throw().words);
    // A newcomer that does not fit gives up, and its end is awaited; at a job's start nobody knows who is right.
    bool newcomers_fault = reports.back().blank && !blank_;
    return Error{newcomers_fault ? Code::peer_lost : Code::mismatch, why};
  }
  auto verdict = membership::settle(reports);
  if (!verdict.contradiction.empty()) return Error{Code::mismatch, verdict.contradiction};
  bool all_blank = std::ranges::all_of(reports, [](const auto& each) { return each.blank; });
  if (all_blank && journal_ && !journal_->resume_dir().empty())
    return Error{Code::not_found, "nobody could begin from the checkpoint"};
  settled_.step_complete = in_step_ && verdict.step > step_;
  return verdict.state_from >= 0 ? transfer(group, verdict) : Status();
}

/// Goes on in the view that is agreed on, whoever dies on the way.
void Core::enter_next() {
  auto began = clock_.now();
  take_stock();
  std::unique_ptr<collective::Group> group;
  std::optional<View> view;
  while (!group) {
    view = roster_->await_next();
    if (!view) return fall_out();
    auto entered = try_enter(*view, group);
    if (entered.ok()) break;
    if (entered.error().code != Code::peer_lost) throw Failure(entered.error().code, entered.error().message);
    log::debug("view {} ended while it was entered: {}", view->epoch, entered.error().message);
    roster_->give_up_on_departed();
  }
  auto before = std::exchange(view_, *view);
  std::swap(group_, group);
  if (closing_ && !settled_.step_complete) salvage(before, *group);
  auto regions = renew_areas();
  apply(settled_);
  for (auto& listener : at_view_)
    if (auto alive = listener.lock()) (*alive)();
  roster_->report_adopted(view_, step_);
  janitor_.take({std::move(group), std::move(regions)});
  stalled_ += clock_.now() - began;
}

/// What of the view that has ended is complete here. It stands still: all who go on have fenced it.
void Core::take_stock() {
  settled_ = {};
  step_held_ = false;
  if (!group_) return;
  for (const auto& ticket : tickets_) ticket->held_ = ticket->done_ || group_->settle(ticket->operation_);
  if ((closing_ || exchange_) && !held_rows_) held_rows_ = group_->settle_exchange();
  step_held_ = closing_ && held_rows_ &&
               std::ranges::all_of(tickets_, [](const auto& t) { return t->held_ || !t->task().with_step; });
}

/// What all have is done; the rest is started again, and of a step that was not complete everything.
void Core::apply(const Settled& settled) {
  step_settled_ = closing_ && settled.step_complete;
  exchange_settled_ = exchange_ && held_rows_ && !settled.missing.contains(*exchange_);
  for (const auto& ticket : tickets_) {
    if (ticket->task().with_step) {
      if (!in_step_ || closed_) continue;
      ticket->done_ = step_settled_;
    } else {
      ticket->done_ = ticket->done_ || (ticket->held_ && !settled.missing.contains(ticket->number_));
    }
    if (ticket->done_) continue;
    if (!ticket->input_.empty()) std::memcpy(ticket->task().out, ticket->input_.data(), ticket->input_.size());
    start_operation(*ticket);
  }
  step_held_ = false;
}

/// Every area gets results of the new view; its input stays what and where it is. Returns what is not needed any more.
std::vector<std::shared_ptr<collective::Region>> Core::renew_areas() {
  std::vector<std::shared_ptr<collective::Region>> before;
  std::erase_if(areas_, [](const auto& entry) { return entry.second.expired(); });
  for (auto& [name, weak] : areas_) {
    auto area = weak.lock();
    auto renewed = group_->create_region(name, area->bytes, area->region->input_memory()).or_throw();
    before.push_back(std::exchange(area->region, std::move(renewed)));
  }
  return before;
}

/// Somebody speaks for those of the dead that had given everything to this step: their gradients, which nobody writes
/// any more, are added to its own.
void Core::salvage(const View& before, collective::Group& group) {
  for (int rank = 0; rank < before.size(); ++rank)
    if (is_heir(self_, before, view_, rank) && left_complete(group, rank)) take_over(group, rank);
}

/// The lowest rank of the dead one's host that is left.
bool Core::is_heir(std::uint64_t self, const View& before, const View& after, int dead) {
  const auto& gone = before.members[static_cast<std::size_t>(dead)];
  if (after.rank_of(gone.id) >= 0) return false;
  auto heir = std::ranges::find_if(before.members, [&](const wire::Member& member) {
    return member.host == gone.host && after.rank_of(member.id) >= 0;
  });
  return heir != before.members.end() && heir->id == self;
}

bool Core::left_complete(collective::Group& group, int rank) {
  return group.published_row(rank) && std::ranges::all_of(tickets_, [&](const auto& ticket) {
           if (!ticket->task().with_step) return true;
           return ticket->task().op != Op::mean && ticket->region_ && ticket->region_->ready() &&
                  group.published_weight(ticket->operation_, rank);
         });
}

void Core::take_over(collective::Group& group, int rank) {
  auto row = decode_summary(*group.published_row(rank));
  if (!row.ok() || row.value().step != step_) return;
  for (const auto& ticket : tickets_) {
    auto& task = ticket->task_;
    if (!task.with_step) continue;
    auto weight = *group.published_weight(ticket->operation_, rank);
    if (!(weight > 0)) continue;
    auto* own = ticket->region_->input() + task.offset;
    const auto* theirs = ticket->region_->input_of(group.place_of(rank)) + task.offset;
    std::vector<double> weights{task.weight, weight}, shares(2);
    std::vector<collective::Contribution> both{{own, 0}, {theirs, 0}};
    if (!(task.weight > 0)) weights.erase(weights.begin()), both.erase(both.begin()), shares.pop_back();
    auto recipe = collective::recipe_for(task.dtype, task.op, weights, shares);
    for (std::size_t i = 0; i < both.size(); ++i) both[i].share = shares[i];
    collective::reduce(recipe, own, both, task.count);
    task.weight = task.op == Op::weighted_mean ? task.weight + weight : 1;
  }
  speak_for(row_, row.value());
  log::debug("step {}: speaking for a dead worker that had given everything", step_);
}

/// Alone: before the job takes this worker in, and after it left. Its collectives are its own affair.
void Core::go_solo() {
  be_alone();
  // Never rank 0 of a job that it is not in.
  int stranger = std::max(1, static_cast<int>(std::min<std::uint64_t>(self_, 1 << 20)));
  turn_ = {Deal{view_, Shares(static_cast<std::size_t>(stranger) + 1, kUsualShare)}, stranger, stranger + 1};
  tickets_.clear();
  renew_areas();
}

void Core::be_alone() {
  if (roster_) roster_->guard(nullptr);
  view_ = {0, 1, seed_, 0, {{self_, getpid(), ""}}};
  group_ = collective::Group::form({"", view_.hash(), view_.members, 0, {}}, Fd()).or_throw();
}

/// The others could not reach this worker and went on without it. What it is in the middle of ends as in a job of one,
/// and counts for nothing; then it asks to be taken in again, and gets the state that the others have.
void Core::fall_out() {
  if (!roster_->has_coordinator()) throw Failure(Code::refused, "the other workers went on without this one");
  log::warn("the other workers went on without this one: asking to be taken in again");
  blank_ = true;
  fallen_ = in_step_;
  be_alone();
  renew_areas();
  for (const auto& ticket : tickets_)
    if (!ticket->done_) start_operation(*ticket);
}

bool Core::detached_until_taken_in() {
  if (!roster_->await_entry(replicas_.describe())) {
    lower_priority();  // those who are left, if any, have work to do
    return false;
  }
  enter_next();
  return true;
}

/// Between two steps: a loss decides, else the last summary.
void Core::change_view() {
  if (!roster_ || !roster_->is_member()) return;
  auto following = std::exchange(following_, std::nullopt);
  if (following) roster_->adopt(*following);
  if (!following && !roster_->must_change()) return;
  if (auto next = roster_->await_next()) {
    bool came_true = following && next->planned == following->planned;  // and was not overtaken by a loss
    if (came_true) deal_ = deal_.among(*following);
    return enter_next();
  }
  departed_ = roster_->leaves();
  if (departed_) lower_priority();  // those who stay have work to do
  blank_ = true;
  go_solo();
}

// ---- what a newcomer is given ----

Status Core::transfer(collective::Group& group, const Verdict& verdict) {
  bool giving = group.rank() == verdict.state_from;
  std::string luggage;
  if (giving)
    luggage = encode(Luggage{step_, samples_seen_, skipped_, lineage_, seed_, plan_, options_, deal_, ledger_,
                             adaptation_.save(), replicas_.items()});
  auto sizes = group.exchange(std::to_string(luggage.size()));
  if (!sizes.ok()) return sizes.error();
  luggage.resize(std::strtoull(sizes.value()[static_cast<std::size_t>(verdict.state_from)].c_str(), nullptr, 10));
  auto copied = group.submit({.name = "~luggage",
                              .dtype = Dtype::u8,
                              .op = Op::sum,
                              .count = luggage.size(),
                              .in = luggage.data(),
                              .out = luggage.data(),
                              .weight = giving ? 1.0 : 0.0,
                              .caller_waits = true});
  if (!copied.ok()) return copied.error();
  PLIANT_TRY(group.wait(copied.value()));
  bool receive = blank_ && !giving;
  if (receive) PLIANT_TRY(unpack(luggage));
  PLIANT_TRY(replicas_.copy_from(group, verdict.state_from, receive));
  PLIANT_TRY(compare_all(group));
  blank_ = false;
  replicas_.watch_anew();
  stripe_digest_ = replicas_.stripe_digest(step_);
  return {};
}

/// Newcomers start with exactly what the others have, all of it.
Status Core::compare_all(collective::Group& group) {
  auto rows = group.exchange(own_digest());
  if (!rows.ok()) return rows.error();
  auto text = deviants_in(rows.value());
  return text.empty() ? Status() : Error{Code::diverged, "state was not copied as it is: " + text};
}

Status Core::unpack(const std::string& bytes) {
  auto unpacked = decode_luggage(bytes);
  if (!unpacked.ok()) return unpacked.error();
  auto& luggage = unpacked.value();
  if (luggage.ledger.has_value() != ledger_.has_value() || (ledger_ && ledger_->samples() != luggage.ledger->samples()))
    return Error{Code::mismatch,
                 fmt::format("the job's data set has {} samples, this worker's has {}",
                             luggage.ledger ? luggage.ledger->samples() : 0, ledger_ ? ledger_->samples() : 0)};
  PLIANT_TRY(replicas_.prepare(luggage.items));
  PLIANT_TRY(adaptation_.load(luggage.adaptation));
  step_ = luggage.step;
  samples_seen_ = luggage.samples;
  skipped_ = luggage.skipped;
  lineage_ = luggage.lineage;
  seed_ = luggage.seed;
  plan_ = luggage.batch;
  options_ = luggage.steps;
  deal_ = std::move(luggage.deal);
  ledger_ = std::move(luggage.ledger);
  return {};
}

}  // namespace pliant::session
