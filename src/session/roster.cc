#include "session/roster.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/base64.h"
#include "base/log.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
using membership::View;

/// The coordinator among those who write letters; ids of workers count from 0.
constexpr std::uint64_t kCoordinator = UINT64_MAX;
/// A worker that has not been given a view waits this long for a coordinator to come back.
constexpr Nanos kLonelyLimit = 10s;
/// Agreement on a view takes milliseconds, unless those who should agree cannot be reached.
constexpr Nanos kPatience = 3s;

wire::Message as_message(const membership::Agreement& letter) {
  return std::visit([](const auto& message) { return wire::Message(message); }, letter);
}

std::optional<membership::Agreement> as_agreement(const wire::Message& message) {
  return std::visit(
      [](const auto& kind) -> std::optional<membership::Agreement> {
        if constexpr (std::is_constructible_v<membership::Agreement, decltype(kind)>)
          return membership::Agreement(kind);
        else
          return std::nullopt;
      },
      message);
}

/// A view as a store keeps it: the message, in letters.
std::string text_of(const View& view) {
  auto packet = wire::encode(membership::notice_of(view));
  return to_base64({reinterpret_cast<const char*>(packet.data()), packet.size()});
}

Result<View> view_from_text(const std::string& text) {
  auto bytes = from_base64(text);
  if (!bytes.ok()) return bytes.error();
  auto message = wire::decode({reinterpret_cast<const std::uint8_t*>(bytes.value().data()), bytes.value().size()});
  if (!message.ok()) return message.error();
  const auto* notice = std::get_if<wire::ViewNotice>(&message.value());
  if (!notice) return Error{Code::protocol, "another message"};
  return membership::view_from(*notice);
}

}  // namespace

Roster::Roster(RosterOptions options)
    : options_(std::move(options)),
      member_(std::in_place, options_.self.id, options_.view, !options_.store.empty()),
      outside_(options_.view.rank_of(options_.self.id) < 0) {
  collective::MeshEvents events;
  events.on_letter = [this](std::uint64_t from, const wire::Message& message) { on_letter(from, message); };
  events.on_lost = [this](const collective::PeerLoss& loss) { on_lost(loss); };
  events.on_found = [this](std::uint64_t id) { on_found(id); };
  events.on_tick = [this] { on_tick(); };
  std::optional<net::Credentials> credentials;
  if (options_.hosts)
    credentials = {options_.hosts->secret,
                   {net::Purpose::coordinator, options_.job, options_.self.id, UINT64_MAX, 0, 0},
                   options_.hosts->address};
  std::unique_lock before_anything_is_heard(mutex_);
  mesh_ = std::make_unique<collective::Mesh>(options_.job, options_.self, std::move(options_.listener), events,
                                             std::move(options_.hosts));
  before_anything_is_heard.unlock();
  if (!options_.store.empty()) {
    Status opened;
    mesh_->run([&] {
      auto store = membership::open_store(mesh_->loop(), options_.store);
      if (store.ok())
        store_ = std::move(store).value();
      else
        opened = store.error();
    });
    opened.or_throw();  // here: nobody would catch it there
  }
  if (options_.coordinator.empty()) return;
  mesh_->run([&] {
    LinkEvents line;
    line.introduce = [this] { return introduction(); };
    line.on_message = [this](const wire::Message& message) { on_coordinator(message); };
    line.on_silence = [this](Nanos since, const std::string& why) {
      std::lock_guard lock(mutex_);
      if (since < kLonelyLimit || first_) return;
      failure_ = Error{Code::peer_lost, "the job's coordinator is gone: " + why};
      changed_.notify_all();
    };
    link_ = std::make_unique<CoordinatorLink>(mesh_->loop(), options_.coordinator, std::move(line), credentials);
  });
}

Roster::~Roster() {
  mesh_->stop();  // before anything that its callbacks use goes
  link_.reset();
  store_.reset();
}

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
          membership::notice_of(outside_ ? View{} : member_->view()),
          step_,
          self.host,
          self.endpoint};
}

// ---- on the mesh's thread ----

void Roster::on_letter(std::uint64_t from, const wire::Message& message) {
  std::lock_guard lock(mutex_);
  // Who has entered a view says thereby that it is in force.
  if (const auto* dead = std::get_if<wire::Dead>(&message))
    mesh_->believe_dead(dead->id);
  else if (const auto* entered = std::get_if<wire::Entered>(&message))
    apply(member_->on_message(from, wire::InForce{entered->view.term, entered->view}, clock_.now()));
  else if (auto letter = as_agreement(message))
    apply(member_->on_message(from, *letter, clock_.now()));
}

void Roster::on_lost(const collective::PeerLoss& loss) {
  std::lock_guard lock(mutex_);
  if (loss.orderly) {
    departed_.insert(loss.id);
    return;
  }
  if (loss.proven) testify(loss.id);
  apply(member_->on_lost(loss.id, loss.proven, clock_.now()));
}

/// Those on other hosts cannot see what this host's kernel says.
void Roster::testify(std::uint64_t id) {
  const auto& members = member_->view().members;
  auto is = [&](const wire::Member& member) { return member.id == id && member.host == options_.self.host; };
  if (std::ranges::none_of(members, is)) return;
  std::vector<std::uint64_t> elsewhere;
  for (const auto& member : members)
    if (member.host != options_.self.host) elsewhere.push_back(member.id);
  mesh_->send(std::move(elsewhere), wire::Dead{id});
}

/// What it was told while it could not be reached is lost: whoever is to enter a view hears of it again.
void Roster::on_found(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto& view = member_->view();
  if (member_->recovering() || view.rank_of(id) < 0 || view.rank_of(self()) < 0) return;
  mesh_->send({id}, wire::InForce{view.term, membership::notice_of(view)});
}

void Roster::on_tick() {
  std::lock_guard lock(mutex_);
  apply(member_->on_time(clock_.now()));
}

void Roster::on_coordinator(const wire::Message& message) {
  std::lock_guard lock(mutex_);
  if (const auto* notice = std::get_if<wire::ViewNotice>(&message)) {
    on_view(*notice);
  } else if (const auto* plan = std::get_if<wire::Plan>(&message)) {
    meet(plan->view.members);
    if (!outside_) member_->on_plan(*plan);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    if (!first_ || outside_) failure_ = Error{Code::refused, "the job refused this worker: " + refusal->reason};
  } else if (std::holds_alternative<wire::Over>(message)) {
    over_ = true;
  } else if (const auto* answer = std::get_if<wire::Answer>(&message)) {
    if (!answer->ok && std::exchange(objection_, answer->text) != answer->text)
      log::warn("the wish for another number of workers is refused: {}", answer->text);
  } else if (const auto* dead = std::get_if<wire::Dead>(&message)) {
    mesh_->believe_dead(dead->id);
  } else if (auto letter = as_agreement(message)) {
    apply(member_->on_message(kCoordinator, *letter, clock_.now()));
  }
  changed_.notify_all();
}

/// The coordinator knows views that are in force. Members know them before, unless they cannot reach each other.
void Roster::on_view(const wire::ViewNotice& notice) {
  auto view = membership::view_from(notice);
  if (!view.ok()) return;
  bool first = !std::exchange(first_, view.value());
  if (!first || view.value().rank_of(self()) >= 0)
    apply(member_->on_message(kCoordinator, wire::InForce{notice.term, notice}, clock_.now()));
  else
    meet(notice.members);
}

/// Connections to newcomers stand before they are taken in.
void Roster::meet(const std::vector<wire::Member>& members) {
  mesh_->post([this, members] { mesh_->expect(members); });
}

void Roster::apply(const membership::Decision& decision) {
  if (decision.fence && group_) group_->fence({Code::peer_lost, "a worker was lost"});
  for (const auto& letter : decision.letters) {
    if (letter.to != kCoordinator)
      mesh_->send({letter.to}, as_message(letter.message));
    else if (link_)
      mesh_->post([this, message = as_message(letter.message)] {
        if (link_) link_->send(message);
      });
  }
  if (decision.ask) mesh_->post([this, view = *decision.ask] { ask_store(view); });
  if (decision.enter) next_ = *decision.enter;
  if (decision.enter || decision.evicted) {
    outside_ = decision.evicted;
    changed_.notify_all();
  }
}

/// A store takes one successor of each epoch. Asked again by the machine until there is an answer.
void Roster::ask_store(const View& view) {
  if (std::exchange(asking_, true)) return;
  auto key = fmt::format("{}/view/{}", options_.job, view.epoch);
  auto answered = [this](const Result<membership::Attempt>& attempt) {
    asking_ = false;
    if (!attempt.ok()) {
      if (!std::exchange(store_silent_, true))
        log::warn("workers are out of reach, and the store does not say how to go on: {}", attempt.error().message);
      return;
    }
    store_silent_ = false;
    auto taken = view_from_text(attempt.value().now.text);
    if (!taken.ok()) return log::warn("the store holds something else than a view: {}", taken.error().message);
    std::lock_guard lock(mutex_);
    apply(member_->on_decided(taken.value(), clock_.now()));
  };
  store_->replace(key, 0, text_of(view), answered);
}

// ---- on the training thread ----

Result<View> Roster::await_first() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return first_ || !failure_.ok() || over_; });
  if (!failure_.ok()) return failure_.error();
  if (!first_) return Error{Code::refused, "the job is over"};
  return *first_;
}

bool Roster::is_member() const {
  std::lock_guard lock(mutex_);
  return !outside_;
}

View Roster::view() const {
  std::lock_guard lock(mutex_);
  return member_->view();
}

void Roster::guard(collective::Group* group) {
  std::lock_guard lock(mutex_);
  group_ = group;
  if (group && (member_->recovering() || next_ || outside_)) group->fence({Code::peer_lost, "a worker was lost"});
}

void Roster::give_up_on_departed() {
  std::lock_guard lock(mutex_);
  for (auto id : departed_)
    if (member_->view().rank_of(id) >= 0) apply(member_->on_lost(id, true, clock_.now()));
}

bool Roster::must_change() const {
  std::lock_guard lock(mutex_);
  return next_ || outside_ || member_->recovering();
}

std::optional<View> Roster::await_next() {
  std::unique_lock lock(mutex_);
  auto decided = [&] { return next_ || outside_; };
  if (!changed_.wait_for(lock, kPatience, decided)) {
    const auto& members = member_->view().members;
    auto lost = std::ranges::count_if(members, [&](const auto& member) { return member_->is_lost(member.id); });
    log::warn("{} of {} workers are out of reach, which is too many to go on without: waiting for them", lost,
              members.size());
    changed_.wait(lock, decided);
    log::info("going on");
  }
  return outside_ ? std::nullopt : next_;
}

void Roster::took(const View& view) {
  std::lock_guard lock(mutex_);
  if (next_ && next_->hash() == view.hash()) next_.reset();
}

void Roster::adopt(const View& view) {
  std::lock_guard lock(mutex_);
  if (!member_->recovering() && !next_) apply(member_->adopt(view, clock_.now()));
}

bool Roster::await_entry(const std::string& layout) {
  if (!has_coordinator()) throw Failure(Code::refused, "the other workers went on without this one");
  std::unique_lock lock(mutex_);
  if (member_->view().size() > 0) member_.emplace(self(), View{}, !options_.store.empty());  // back again: a newcomer
  layout_ = layout;
  mesh_->post([this, layout] {
    if (link_) link_->send(wire::Ready{layout});
  });
  changed_.wait(lock, [&] { return next_ || !failure_.ok() || over_; });
  if (!failure_.ok()) throw Failure(failure_.error().code, failure_.error().message);
  return next_.has_value();
}

std::optional<View> Roster::plan() const {
  std::lock_guard lock(mutex_);
  const auto& plan = member_->plan();
  if (!plan || !mesh_->reaches(plan->members)) return std::nullopt;
  return plan;
}

void Roster::set_layout(const std::string& layout) {
  std::lock_guard lock(mutex_);
  layout_ = layout;
  if (outside_) return;  // then await_entry() says so
  mesh_->post([this, layout] {
    if (link_) link_->send(wire::Shares{layout});
  });
}

void Roster::report(wire::Progress progress) {
  if (link_) link_->report(std::move(progress));
}

void Roster::report_adopted(const View& view, std::uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    step_ = step;
  }
  mesh_->post([this, message = wire::Adopted{membership::notice_of(view), step}] {
    if (link_) link_->send(message);
  });
}

void Roster::ask_for(std::uint32_t workers, bool settled) {
  mesh_->post([this, workers, settled] {
    if (link_) link_->send(wire::Resize{workers, static_cast<std::uint8_t>(settled)});
  });
}

void Roster::ask_to_replace(std::uint64_t worker) {
  mesh_->post([this, worker] {
    if (link_) link_->send(wire::Replace{worker});
  });
}

void Roster::say_goodbye() {
  mesh_->say_goodbye();
  mesh_->run([this] {
    if (!link_) return;
    link_->flush();
    link_->send(wire::Bye{});
  });
}

}  // namespace pliant::session
