#include "session/roster.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/planted.h"
#include "session/platform.h"
#include "session/roster_held.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
using membership::View;

/// A connection that was lost is usually made again by then.
constexpr Nanos kTimeToConnect = 50ms;
/// Agreement on a view takes milliseconds, unless those who should agree cannot be reached.
constexpr Nanos kPatience = 3s;

}  // namespace

Roster::Roster(RosterOptions options)
    : options_(std::move(options)),
      clock_(Platform::current().clock()),
      changed_(Platform::current().condition()),
      member_(std::in_place, options_.self.id, options_.view, options_.has_store),
      place_(options_.view.rank_of(options_.self.id) < 0 ? Place::outside : Place::inside) {
  absentees_.on_view(options_.view);
  show();
  TransportEvents events;
  events.on_letter = [this](std::uint64_t from, const wire::Message& message) { on_letter(from, message); };
  events.on_lost = [this](const collective::PeerLoss& loss) { on_lost(loss); };
  events.on_found = [this](std::uint64_t id) { on_found(id); };
  events.on_tick = [this] { on_tick(); };
  events.introduce = [this] { return introduction(); };
  events.on_coordinator = [this](const wire::Message& message) { on_coordinator(message); };
  events.on_silence = [this](Nanos since, const std::string& why) { on_silence(since, why); };
  transport_ = options_.open();
  transport_->start(std::move(events));
}

Roster::~Roster() { transport_->stop(); }  // before anything that its events use goes

wire::Join Roster::introduction() const {
  std::lock_guard lock(mutex_);
  const auto& self = options_.self;
  return {options_.job,
          self.id,
          self.pid,
          self.address,
          options_.cpu_level,
          options_.build,
          layout_,
          membership::notice_of(outside() ? View{} : member_->view()),
          step_,
          self.host,
          self.endpoint,
          newest_known()};
}

std::uint64_t Roster::newest_known() const {
  return std::max(member_->newest_known().epoch, first_ ? first_->epoch : 0);
}

void Roster::show() {
  signs_.show(!outside(), next_ || outside() || member_->recovering(), member_->plan().has_value());
}

Result<View> Roster::await_first() {
  std::unique_lock lock(mutex_);
  changed_->await(lock, [&] { return first_ || !failure_.ok() || over_; });
  if (!failure_.ok()) return failure_.error();
  if (!first_) return Error{Code::refused, "the job is over"};
  return *first_;
}

View Roster::view() const {
  std::lock_guard lock(mutex_);
  return member_->view();
}

bool Roster::is_dead(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  return member_->ended(id) && !absentees_.departed().contains(id);
}

void Roster::guard(collective::Group* group) {
  std::lock_guard lock(mutex_);
  group_ = group;
  if (group && (member_->recovering() || next_ || outside())) group->fence({Code::peer_lost, "a worker was lost"});
}

void Roster::give_up_on_departed() {
  absentees_.give_up(true);  // on those too whose goodbye is still on its way
  for (const auto& [id, last] : absentees_.departed())
    if (member_->view().rank_of(id) >= 0) apply(member_->on_lost(id, true, clock_.now(), last));
}

bool Roster::expects_somebody_back() const {
  std::lock_guard lock(mutex_);
  return absentees_.anybody_may_return();
}

std::optional<View> Roster::await_next() {
  Held held(*this);
  auto& lock = held.lock();
  give_up_on_departed();
  // Whoever waits for others learns from the coordinator that these have finished the job without it.
  auto decided = [&] {
    if (over_ && !next_) place_ = Place::outside;
    return next_ || outside();
  };
  if (!changed_->await_for(lock, clock_, kPatience, decided)) {
    const auto& members = member_->view().members;
    auto lost = std::ranges::count_if(members, [&](const auto& member) { return member_->is_lost(member.id); });
    log::warn("{} of {} workers are out of reach, which is too many to go on without: waiting for them", lost,
              members.size());
    changed_->await(lock, decided);
    log::info("going on");
  }
  return outside() ? std::nullopt : next_;
}

/// Before it acts in the view, or anybody can count its vote on what follows: what is noted must not say less.
void Roster::note_view(const View& view) {
  noted_ = {view.epoch, member_->view().hash() == view.hash() && !member_->has_voted()};
  transport_->note_view(noted_);
}

void Roster::took(const View& view) {
  Held held(*this);
  note_view(view);
  if (next_ && next_->hash() == view.hash()) next_.reset();
  absentees_.give_up(false);
}

bool Roster::keep_group(const View& view) {
  Held held(*this);
  if (formed_ == view.hash() || !next_ || next_->hash() != view.hash() || member_->recovering() || outside())
    return false;
  note_view(view);
  kept_ = view.hash();
  next_.reset();
  return true;
}

void Roster::cannot_enter(const View& view) {
  Held held(*this);
  auto& lock = held.lock();
  auto another = [&] {
    return next_ || outside() || over_ || member_->recovering() || member_->view().hash() != view.hash();
  };
  if (!changed_->await_for(lock, clock_, kTimeToConnect, another)) apply(member_->on_unusable(clock_.now()));
}

void Roster::end_view(const View& view) {
  Held held(*this);
  if (!next_ && !outside() && member_->view().hash() == view.hash()) apply(member_->on_unusable(clock_.now()));
}

void Roster::set_holds() {
  Held held(*this);
  member_->set_holds(true);
}

void Roster::adopt(const View& view) {
  Held held(*this);
  if ((!member_->recovering() && !next_) || planted("adopt-anyway")) apply(member_->adopt(view, clock_.now()));
}

bool Roster::await_entry(const std::string& layout) {
  if (!has_coordinator()) throw Failure(Code::refused, "the other workers went on without this one");
  Held held(*this);
  auto& lock = held.lock();
  layout_ = layout;
  if (member_->view().size() > 0) {
    become_newcomer();
    // It may be taken in without having asked again.
    changed_->await_for(lock, clock_, returns_.next(clock_.now()),
                        [&] { return next_ || over_ || !failure_.ok() || leaves_; });
  }
  while (!next_ && failure_.ok() && !over_) {
    place_ = Place::asking;
    tell_ready();
    changed_->await(lock, [&] { return next_ || !failure_.ok() || over_ || place_ == Place::outside; });
    if (!next_ && place_ == Place::outside) become_newcomer();  // taken in and out before this thread saw it
  }
  if (!next_) place_ = Place::outside;
  if (!failure_.ok()) throw Failure(failure_.error().code, failure_.error().message);
  return next_.has_value();
}

void Roster::tell_ready() { transport_->tell(wire::Ready{layout_, newest_known()}); }

/// Whoever comes back knows of no view that it could be in.
void Roster::become_newcomer() {
  auto past = member_->newest_known();
  member_.emplace(self(), View{}, options_.has_store, std::move(past));
}

std::optional<View> Roster::plan() const {
  if (!signs_.plan()) return std::nullopt;
  std::lock_guard lock(mutex_);
  const auto& plan = member_->plan();
  if (!plan || !transport_->reaches(plan->members)) return std::nullopt;
  return plan;
}

void Roster::set_layout(const std::string& layout) {
  std::lock_guard lock(mutex_);
  layout_ = layout;
  if (outside()) return;  // then await_entry() says so
  transport_->tell(wire::Shares{layout});
}

void Roster::report(wire::Progress progress) { transport_->report(std::move(progress)); }

void Roster::report_adopted(const View& view, std::uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    step_ = step;
    member_->on_settled();
    absentees_.on_settled(member_->at_hand());
    transport_->on_settled(member_->at_hand());
  }
  transport_->tell(wire::Adopted{membership::notice_of(view), step});
}

void Roster::ask_for(std::uint32_t workers, bool settled) {
  transport_->tell(wire::Resize{workers, static_cast<std::uint8_t>(settled)});
}

void Roster::ask_to_replace(std::uint64_t worker) { transport_->tell(wire::Replace{worker}); }

void Roster::report_outcome(Outcome outcome, std::uint64_t step) {
  if (has_coordinator()) transport_->report_outcome(outcome, step);
}

void Roster::say_goodbye(Outcome outcome, std::uint64_t step) { transport_->say_goodbye(outcome, step); }

}  // namespace pliant::session
