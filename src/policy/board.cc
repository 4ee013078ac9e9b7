#include "policy/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "policy/action.h"

namespace pliant::policy {
namespace {

constexpr std::size_t kMostSaved = 64 << 20;
constexpr std::size_t kMostText = 4096;  // of a name, or an action
constexpr std::chrono::milliseconds kSlice{20};

Action call(Policy& policy, const StepReport& report, const Board::Occasion& now) {
  Action action;
  if (now.step_ended) action.also(policy.after_step(report));
  if (now.epoch_ended) action.also(policy.after_epoch(report));
  if (now.train_ended) action.also(policy.after_train(report));
  if (now.train_begins) action.also(policy.before_train(report));
  if (now.epoch_begins) action.also(policy.before_epoch(report));
  if (now.step_begins) action.also(policy.before_step(report));
  return action;
}

}  // namespace

struct Board::Seat {
  std::string name;
  PolicyPtr policy;  // its hooks are called by `thread` alone, while `busy`
  std::thread thread;
  bool dismissed = false;  // the training thread's

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<StepReport, Occasion>> told;  // guarded by mutex
  bool busy = false;                                 // guarded by mutex
  bool ended = false;                                // guarded by mutex
  Answer answer;                                     // guarded by mutex
};

void Board::serve(const SeatPtr& seat) {
  std::unique_lock lock(seat->mutex);
  while (true) {
    seat->changed.wait(lock, [&] { return seat->ended || !seat->told.empty(); });
    if (seat->ended) return;
    auto [report, occasion] = std::move(seat->told.front());
    seat->told.pop_front();
    seat->busy = true;
    lock.unlock();
    Answer said;
    try {
      said.action = call(*seat->policy, report, occasion);
      if (occasion.step_ended) seat->policy->contribute(said.numbers);
      auto objection = objection_to(said.action);
      if (!objection.empty()) throw Failure(Code::invalid, objection);
    } catch (const std::exception& problem) {
      said = {{}, {}, problem.what()};
    } catch (...) {
      said = {{}, {}, "it threw something that is no exception"};
    }
    lock.lock();
    seat->busy = false;
    seat->answer.action.also(said.action);
    for (const auto& [name, value] : said.numbers.values()) seat->answer.numbers.add(name, value);
    if (seat->answer.failure.empty()) seat->answer.failure = said.failure;
    seat->changed.notify_all();
  }
}

Board::~Board() {
  for (auto& seat : seats_) {
    bool here = seat->dismissed || await(*seat);
    {
      std::lock_guard lock(seat->mutex);
      seat->ended = true;
      seat->changed.notify_all();
      here = here && !seat->busy;
    }
    if (here)
      seat->thread.join();
    else
      seat->thread.detach();
  }
}

void Board::add(std::string name, PolicyPtr policy) {
  auto seat = std::make_shared<Seat>();
  seat->name = std::move(name);
  seat->policy = std::move(policy);
  seat->thread = std::thread([seat] { serve(seat); });
  seats_.push_back(std::move(seat));
}

const std::string& Board::name(std::size_t index) const { return seats_[index]->name; }
bool Board::dismissed(std::size_t index) const { return seats_[index]->dismissed; }

void Board::dismiss(std::size_t index) {
  auto& seat = *seats_[index];
  seat.dismissed = true;
  std::lock_guard lock(seat.mutex);
  seat.told.clear();
  seat.answer = {};
}

void Board::tell(const StepReport& report, const Occasion& occasion) {
  for (auto& seat : seats_) {
    if (seat->dismissed) continue;
    std::lock_guard lock(seat->mutex);
    seat->told.emplace_back(report, occasion);
    seat->changed.notify_all();
  }
}

/// True if it has answered everything. Waits in slices, each of which counts as what it should have taken: time in
/// which this process did not run, and the policy neither, is not held against it.
bool Board::await(Seat& seat) const {
  std::unique_lock lock(seat.mutex);
  auto answered = [&] { return seat.told.empty() && !seat.busy; };
  for (auto left = patience_; left.count() > 0; left -= kSlice)
    if (seat.changed.wait_for(lock, std::min(left, kSlice), answered)) return true;
  return answered();
}

std::vector<Answer> Board::take_answers() {
  std::vector<Answer> answers(seats_.size());
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    auto& seat = *seats_[i];
    if (seat.dismissed) continue;
    bool here = await(seat);
    std::lock_guard lock(seat.mutex);
    answers[i] = std::exchange(seat.answer, {});
    if (!here) answers[i] = {{}, {}, fmt::format("it did not answer within {} ms", patience_.count())};
  }
  return answers;
}

std::string Board::save() {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(seats_.size()));
  for (auto& seat : seats_) {
    bool here = !seat->dismissed && await(*seat);
    std::lock_guard lock(seat->mutex);
    out.put_text(seat->name);
    out.put(static_cast<std::uint8_t>(seat->dismissed ? 1 : 0));
    out.put_text(here ? seat->policy->save() : "");
    out.put_text(encode(seat->answer.action));
  }
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}

Status Board::load(std::string_view saved) {
  ByteReader in({reinterpret_cast<const std::uint8_t*>(saved.data()), saved.size()});
  auto count = in.get<std::uint32_t>();
  if (in.ok() && count != seats_.size())
    return Error{Code::mismatch, fmt::format("the job has {} policies, this worker {}", count, seats_.size())};
  for (auto& seat : seats_) {
    auto name = in.get_text(kMostText);
    bool dismissed = in.get<std::uint8_t>() != 0;
    auto state = in.get_text(kMostSaved);
    auto action = decode_action(in.get_text(kMostText));
    if (!in.ok() || !action.ok()) break;
    if (name != seat->name)
      return Error{Code::mismatch, fmt::format("the job has the policy '{}', this worker '{}'", name, seat->name)};
    if (!await(*seat)) dismissed = true;
    seat->dismissed = dismissed;
    std::lock_guard lock(seat->mutex);
    seat->told.clear();
    seat->answer = {action.value(), {}, {}};
    if (dismissed) continue;
    try {
      seat->policy->load(state);
    } catch (const std::exception& problem) {
      seat->answer = {{}, {}, fmt::format("it cannot go on from what the others know: {}", problem.what())};
    }
  }
  if (!in.finished()) return Error{Code::protocol, "malformed states of policies"};
  return {};
}

// ---- several of them ----

namespace {

template <class T>
void reconcile_one(const std::vector<std::string>& names, const std::vector<Action>& what, Consensus& all,
                   std::optional<T> Action::*field) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < what.size(); ++i) {
    if (!(what[i].*field)) continue;
    if (!first) {
      first = i;
      all.action.*field = what[i].*field;
      continue;
    }
    if (what[i].*field == what[*first].*field) continue;
    Action one, other;
    one.*field = what[*first].*field;
    other.*field = what[i].*field;
    all.complaints.push_back(fmt::format("policy '{}' wants {}, '{}' wants {}: neither is done", names[*first],
                                         describe(one), names[i], describe(other)));
    (all.action.*field).reset();
    return;
  }
}

}  // namespace

Consensus reconcile(const std::vector<std::string>& names, const std::vector<Action>& what) {
  Consensus all;
  reconcile_one(names, what, all, &Action::workers);
  reconcile_one(names, what, all, &Action::global_batch);
  reconcile_one(names, what, all, &Action::local_batch);
  reconcile_one(names, what, all, &Action::rate_factor);
  reconcile_one(names, what, all, &Action::replace);
  reconcile_one(names, what, all, &Action::topology);
  for (const auto& each : what) {
    all.action.stop = all.action.stop || each.stop;
    all.action.settled = all.action.settled || (all.action.workers && each.settled);
    for (const auto& [worker, share] : each.shares) all.action.shares[worker] = share;
    if (!each.text.empty()) all.action.text += (all.action.text.empty() ? "" : "; ") + each.text;
  }
  if (all.action.global_batch && all.action.local_batch) {
    all.complaints.emplace_back("one policy wants a batch in all, another one per worker: neither is done");
    all.action.global_batch.reset();
    all.action.local_batch.reset();
  }
  return all;
}

}  // namespace pliant::policy
