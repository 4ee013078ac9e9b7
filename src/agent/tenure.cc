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
  if (!entry.ok() || (entry.value().revision == 0 && !options_.founds)) {
    state_ = State::unread;
    return;
  }
  revision_ = entry.value().revision;
  answered_ = clock_.now();
  auto memory = memory_from(entry.value().text);
  if (memory && options_.own) add_facts(*options_.own, *memory);
  if (memory) memory->next_id += kNumbersAhead;
  state_ = State::serving;
  events_.serve(memory);
}

void Tenure::remember(const membership::Memory& memory) {
  if (!store_) return;
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
    look();
  });
}

void Tenure::once_sure(Say say) {
  unsaid_.push_back(std::move(say));
  if (!store_) return say_all(true);
  if (!writing_ && answers_) look();  // else soon, when it is asked again
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

/// Whoever is still in place after its memory was stored is sure that a successor will read it.
void Tenure::look() {
  if (!store_ || state_ == State::beginning || state_ == State::ended) return;
  if (state_ == State::unread) return read_memory();
  auto unsaid = is_stored() ? std::exchange(unsaid_, {}) : std::vector<Say>();
  store_->read(place_key(options_.job), [this, unsaid = std::move(unsaid)](const auto& place) mutable {
    if (is_elsewhere(place)) return;
    if (!place.ok()) unsaid_.insert(unsaid_.begin(), unsaid.begin(), unsaid.end());  // once more
    on_answer(place.ok());
    if (place.ok())
      for (const auto& say : unsaid) say(true);
    if (stale_ && !writing_) write();
  });
}

}  // namespace pliant::agent
