#include "agent/tenure.h"

#include <algorithm>
#include <utility>

#include "agent/coordinator_memory.h"
#include "agent/election.h"
#include "base/log.h"

namespace pliant::agent {
namespace {

/// A predecessor may have used more numbers than it could write down.
constexpr std::uint64_t kNumbersAhead = 64;
/// A note of this host may be older than that: there may have been coordinators elsewhere since.
constexpr std::uint64_t kNumbersAheadOfANote = 1024;

/// What this host's last coordinator could not store while the store did not answer is facts about the same lineage.
void add_facts(const membership::Memory& own, membership::Memory& memory) {
  auto place = [](const membership::View& view) { return std::pair(view.epoch, view.term); };
  if (own.view.restarts != memory.view.restarts || memory.view.members.empty()) return;
  // It began the job too, and could not store that: nobody has heard of it.
  bool another_beginning = place(own.view) == place(memory.view) && own.view.hash() != memory.view.hash();
  if (another_beginning) return;
  if (place(own.view) > place(memory.view)) {
    memory.view = own.view;
    memory.said = own.said;  // what was said of an end before that view is taken back by it
  } else if (!memory.said && place(own.view) == place(memory.view)) {
    memory.said = own.said;
  }
  memory.next_id = std::max(memory.next_id, own.next_id);
  memory.stopping = std::max(memory.stopping, own.stopping);
  // What was known of the end of a worker's loop when its process had ended is the last word on it.
  for (const auto& [id, outcome] : own.outcomes)
    if (!memory.ended.contains(id)) memory.outcomes.emplace(id, outcome);
  for (const auto& [id, view] : own.ended)
    if (memory.ended.emplace(id, view).second && !own.outcomes.contains(id)) memory.outcomes.erase(id);
  memory.invited.insert(own.invited.begin(), own.invited.end());
  std::erase_if(memory.invited, [&](const auto& entry) { return memory.ended.contains(entry.first); });
  memory.hosts.insert(own.hosts.begin(), own.hosts.end());
}

}  // namespace

Tenure::Tenure(const Clock& clock, std::unique_ptr<membership::Store> store, TenureOptions options, TenureEvents events)
    : clock_(clock), options_(std::move(options)), events_(std::move(events)), store_(std::move(store)) {}

void Tenure::begin() {
  if (!store_) {
    state_ = State::serving;
    return events_.serve(options_.own);
  }
  store_->read(place_key(options_.job), [this](const auto& place) {
    if (!is_elsewhere(place)) read_memory();
  });
}

void Tenure::read_memory() {
  state_ = State::beginning;
  store_->read(memory_key(options_.job), [this](const auto& entry) { on_memory(entry); });
}

void Tenure::on_memory(const Result<membership::Entry>& entry) {
  if (!entry.ok()) log::warn("coordinator: {}", entry.error().message);
  bool nothing = entry.ok() && entry.value().revision == 0;
  if (!entry.ok() || (nothing && !options_.founds)) {
    state_ = State::unread;
    return;
  }
  revision_ = entry.value().revision;
  answered_ = clock_.now();
  state_ = State::serving;
  auto memory = nothing ? own_beginning() : memory_from(entry.value().text);
  if (memory && !nothing && options_.own) add_facts(*options_.own, *memory);
  if (memory) memory->next_id += nothing ? kNumbersAheadOfANote : kNumbersAhead;
  over_ = memory && memory->said;
  events_.serve(memory);
}

/// Whoever may begin the job is also the one that lets the store forget it: if the store knows nothing of a job that
/// has begun, somebody else has removed that, or it was never stored.
std::optional<membership::Memory> Tenure::own_beginning() const {
  if (!options_.own || options_.own->view.members.empty()) return std::nullopt;
  log::warn("coordinator: the store knows nothing of job '{}', which goes on with what this host knows", options_.job);
  return options_.own;
}

void Tenure::remember(const membership::Memory& memory) {
  if (!store_) return;
  over_ = memory.said.has_value();
  memory_ = memory_text(memory);
  write();
}

void Tenure::write() {
  stale_ = true;
  if (std::exchange(writing_, true)) return;
  stale_ = false;
  store_->replace(memory_key(options_.job), revision_, memory_, [this](const auto& attempt) {
    writing_ = false;
    // Lost against a predecessor, a successor, or an attempt that seemed to fail.
    if (!attempt.ok() || !attempt.value().won) stale_ = true;
    on_answer(attempt.ok());
    if (!attempt.ok()) return;
    revision_ = attempt.value().now.revision;
    confirm();
  });
}

void Tenure::once_sure(Say say) {
  unsaid_.push_back(std::move(say));
  if (!store_) return say_all(true);
  if (!writing_ && answers_) confirm();  // else soon, when it is asked again
}

void Tenure::say_all(bool sure) {
  for (const auto& say : std::exchange(unsaid_, {})) say(sure);
}

void Tenure::on_answer(bool answered) {
  auto now = clock_.now();
  answers_ = answered;
  if (answered) answered_ = now;
  if (now - answered_ >= kPatience) say_all(false);
}

bool Tenure::is_elsewhere(const Result<membership::Entry>& place) {
  if (state_ == State::ended) return true;
  if (!place.ok() || place.value().revision == 0 || place.value().text == options_.place) return false;
  state_ = State::ended;
  events_.succeeded();
  return true;
}

void Tenure::look() {
  if (state_ == State::unread) return read_memory();
  confirm();
  check_memory();
}

/// Whoever is still in place after its memory was stored is sure that a successor will read it.
void Tenure::confirm() {
  if (!store_ || state_ != State::serving) return;
  auto unsaid = is_stored() ? std::exchange(unsaid_, {}) : std::vector<Say>();
  store_->read(place_key(options_.job),
               [this, unsaid = std::move(unsaid)](const auto& place) mutable { on_place(place, std::move(unsaid)); });
}

void Tenure::on_place(const Result<membership::Entry>& place, std::vector<Say> unsaid) {
  if (is_elsewhere(place)) return;
  bool gone = place.ok() && place.value().revision == 0 && !over_;
  if (!place.ok() || gone) unsaid_.insert(unsaid_.begin(), unsaid.begin(), unsaid.end());  // once more
  on_answer(place.ok());
  if (gone) return store_place_again();
  if (place.ok())
    for (const auto& say : unsaid) say(true);
  if (stale_ && !writing_) write();
}

/// What waits to be said waits until the place is found to be ours.
void Tenure::store_place_again() {
  store_->replace(place_key(options_.job), 0, options_.place, [this](const Result<membership::Attempt>& attempt) {
    if (attempt.ok() && is_elsewhere(attempt.value().now)) return;
    on_answer(attempt.ok());
    if (stale_ && !writing_) return write();
    if (attempt.ok() && attempt.value().won) confirm();
  });
}

/// Somebody else may have removed or overwritten it, and a successor would miss it.
void Tenure::check_memory() {
  if (state_ != State::serving || memory_.empty() || over_ || !is_stored()) return;
  store_->read(memory_key(options_.job), [this, known = revision_](const Result<membership::Entry>& entry) {
    bool changed = entry.ok() && entry.value().revision != known;
    if (!changed || state_ != State::serving || !is_stored() || revision_ != known) return;
    revision_ = entry.value().revision;
    stale_ = true;
    confirm();  // it may be a successor's, who has taken the place before
  });
}

}  // namespace pliant::agent
