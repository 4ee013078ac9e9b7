#include "agent/election.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pliant::agent {

std::string place_key(const std::string& job) { return job + "/coordinator"; }
std::string memory_key(const std::string& job) { return job + "/memory"; }

Election::Election(const Clock& clock, std::unique_ptr<membership::Store> store, std::string job, ElectionEvents events)
    : clock_(clock), job_(std::move(job)), events_(std::move(events)), store_(std::move(store)) {}

void Election::tick(std::optional<Nanos> missed_for) {
  if (!missed_for && clock_.now() - learned_ >= kSteady) patience_ = kPatience;
  if (!missed_for || std::exchange(asking_, true)) return;
  // A place that was just learned has not had the time to answer.
  auto silent_for = std::min(*missed_for, clock_.now() - learned_);
  store_->read(place_key(job_), [this, silent_for](const auto& entry) { on_read(entry, silent_for); });
}

void Election::on_read(const Result<membership::Entry>& entry, Nanos silent_for) {
  asking_ = false;
  if (!entry.ok()) return fail(entry.error());
  in_trouble_ = false;
  const auto& said = entry.value();
  if (said.revision && said.text != place_) return learn(said);
  if (said.revision == 0 && !place_.empty() && place_ == own_) return store_own(0);
  bool nothing_yet = said.revision == 0 && place_.empty();
  bool is_ours = said.revision && said.text == own_;
  if (nothing_yet || (silent_for >= patience_ && !is_ours)) offer(said.revision);
}

void Election::offer(std::uint64_t revision) {
  auto own = events_.offer();
  if (!own.ok()) return fail(own.error());
  own_ = own.value();
  store_own(revision);
}

void Election::store_own(std::uint64_t revision) {
  asking_ = true;
  store_->replace(place_key(job_), revision, own_, [this](const Result<membership::Attempt>& attempt) {
    asking_ = false;
    if (!attempt.ok()) return fail(attempt.error());
    const auto& now = attempt.value().now;
    if (now.revision && now.text != place_) learn(now);  // there may be nothing: what was to be replaced is gone
  });
}

void Election::learn(const membership::Entry& entry) {
  if (!place_.empty()) patience_ = std::min(2 * patience_, kMostPatience);
  place_ = entry.text;
  learned_ = clock_.now();
  events_.on_place(place_, place_ == own_);
}

void Election::forget(std::function<void()> done) {
  store_->remove_all(job_ + "/", [done = std::move(done)](const Status&) { done(); });
}

void Election::fail(const Error& error) {
  if (!std::exchange(in_trouble_, true)) events_.on_trouble(error.message);
}

}  // namespace pliant::agent
