#include "collective/roads.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kNoView = 0;
constexpr std::uint16_t kLetter = 100, kHeartbeat = 101;
constexpr std::uint64_t kNobody = UINT64_MAX;  // no worker's id: it stands for the coordinator elsewhere
static_assert(wire::kMaxPacket <= FrameHeader::kLongest);
constexpr std::uint32_t kLaneNumbers = 16;  // an introduction names attempt × this + lane
constexpr Nanos kLate = 150ms;              // a tick that comes so late says nothing about others

FrameHeader small_frame(std::uint16_t kind) {
  FrameHeader header;
  header.kind = kind;
  header.view = kNoView;
  return header;
}

}  // namespace

Roads::Roads(net::Loop& loop, std::string job, std::uint64_t self, HostsOptions options, RoadEvents events)
    : loop_(loop), job_(std::move(job)), self_(self), options_(std::move(options)), events_(std::move(events)) {
  auto on_loop = [this](void (Roads::*what)(std::uint64_t, const std::string&)) {
    return [this, what, alive = std::weak_ptr(alive_)](std::uint64_t id, const std::string& how) {
      loop_.post([this, what, alive, id, how] {
        if (alive.lock()) (this->*what)(id, how);
      });
    };
  };
  streams_ = std::make_unique<Streams>(on_loop(&Roads::lose), on_loop(&Roads::leave_behind));
  streams_->subscribe(kNoView, this);
  net::GateOptions gate;
  gate.objection = [this](const net::Introduction& who) { return objection_to(who); };
  gate_ = std::make_unique<net::Gate>(
      loop_, std::move(options_.listener), options_.secret, job_, [this](net::Guest guest) { admit(std::move(guest)); },
      std::move(gate));
  ticked_ = clock_.now();
  timer_ = loop_.every(kBeat, [this] { tick(); });
}

Roads::~Roads() {
  loop_.cancel(timer_);
  gate_.reset();
  roads_.clear();
  streams_->unsubscribe(kNoView);
  streams_.reset();
}

// ---- who is let in ----

std::string Roads::objection_to(const net::Introduction& who) const {
  if (who.purpose != net::Purpose::data || who.to != self_) return "a call for somebody else";
  if (who.from <= self_ || who.from == kNobody) return "a call from the wrong side";
  if (limits_.offenders.contains(who.from)) return "a call of somebody who has broken a rule";
  if (who.protection != protection_of(who.lane % kLaneNumbers)) return "a call with another protection than this job's";
  auto road = roads_.find(who.from);
  if (road != roads_.end() && road->second.forgotten) return "a call of somebody who is known to be dead";
  if (road == roads_.end() && is_crowded()) return "a call of somebody unknown, after too many others";
  return {};
}

/// Messages are sealed always: they decide who is a member.
net::Protection Roads::protection_of(std::uint32_t lane) const {
  return options_.trusted && lane > 0 ? net::Protection::plain : net::Protection::sealed;
}

bool Roads::is_crowded() const {
  auto unexpected = std::ranges::count_if(roads_, [](const auto& road) { return road.second.member.endpoint.empty(); });
  return limits_.offenders.size() + static_cast<std::size_t>(unexpected) >= options_.most_unexpected;
}

void Roads::admit(net::Guest guest) {
  auto& road = roads_[guest.who.from];
  road.member.id = guest.who.from;
  auto attempt = guest.who.lane / kLaneNumbers, lane = guest.who.lane % kLaneNumbers;
  if (lane >= kLanes || attempt < road.attempt) return;       // or it is late, and has called again since
  if (attempt > road.attempt || road.lanes.contains(lane)) {  // it has lost what there was
    if (!road.lanes.empty()) lose(guest.who.from, "it called again");
    road.attempt = attempt;
  }
  add_lane(road, lane, std::move(guest));
}

// ---- calling ----

void Roads::expect(const wire::Member& member) {
  if (limits_.offenders.contains(member.id)) return events_.on_lost(member.id, "it has broken a rule before");
  auto& road = roads_[member.id];
  if (road.forgotten && member.pid != road.member.pid) road = Road{};  // it comes back as another process
  road.member = member;
  if (road.forgotten || road.connected) return;
  road.calls = member.id < self_;
  road.missed_since = clock_.now();
  if (road.calls && road.calling.empty()) call(road);
}

void Roads::forget(std::uint64_t id) {
  auto& road = roads_[id];
  road.forgotten = true;
  road.calling.clear();
  road.lanes.clear();
  road.connected = false;
  streams_->drop(id);
}

void Roads::erase(std::uint64_t id) {
  forget(id);
  roads_.erase(id);
}

void Roads::call(Road& road) {
  auto to = net::parse_endpoint(road.member.endpoint);
  if (!to.ok()) return events_.on_lost(road.member.id, to.error().message);
  ++road.attempt;
  road.lanes.clear();
  road.call_at = Nanos(0);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    net::Introduction who{net::Purpose::data, job_, self_, road.member.id, view_, road.attempt * kLaneNumbers + lane,
                          protection_of(lane)};
    auto ended = [this, id = road.member.id, lane](Result<net::Guest> guest) {
      auto& called = roads_[id];
      if (guest.ok()) return add_lane(called, lane, std::move(guest).value());
      log::debug("worker {} cannot be reached: {}", id, guest.error().message);
      lose(id, guest.error().message);
    };
    road.calling[lane] =
        std::make_unique<net::Call>(loop_, to.value(), options_.address, options_.secret, std::move(who), ended);
  }
}

void Roads::add_lane(Road& road, std::uint32_t lane, net::Guest guest) {
  auto id = road.member.id;
  std::optional<net::ConnectionKeys> keys;
  if (guest.who.protection == net::Protection::sealed) keys = std::move(guest.keys);
  streams_->add(id, lane, std::move(guest.socket), guest.rest, std::move(keys));
  road.lanes.insert(lane);
  road.heard = clock_.now();
  if (road.lanes.size() < kLanes) return;
  road.connected = true;
  road.missed_since = Nanos(0);
  if (!road.calling.empty())  // not now: this may be one of them calling
    loop_.post([this, alive = std::weak_ptr(alive_), id] {
      if (alive.lock() && roads_[id].connected) roads_[id].calling.clear();
    });
  events_.on_connected(id);
}

/// What was under way to this peer has ended. It is called again later.
void Roads::lose(std::uint64_t id, const std::string& how) {
  auto& road = roads_[id];
  if (road.forgotten) return;
  streams_->drop(id);
  bool was_connected = std::exchange(road.connected, false);
  road.lanes.clear();
  if (road.calls) road.call_at = clock_.now() + kRetry;
  if (was_connected) events_.on_lost(id, how);
}

void Roads::leave_behind(std::uint64_t id, const std::string& what) {
  if (!limits_.offenders.add(id)) return;
  log::warn("worker {} has broken a rule: it sent {}. It is left behind, and not let in again", id, what);
  bool was_connected = roads_[id].connected;
  forget(id);
  if (was_connected) events_.on_lost(id, "it has broken a rule: it sent " + what);
}

void Roads::tick() {
  auto now = clock_.now();
  bool late = now - ticked_ > kLate;  // this process did not run: it cannot judge
  ticked_ = now;
  std::vector<std::uint64_t> silent, absent;
  for (auto& [id, road] : roads_) {
    if (road.missed_since > Nanos(0) && !road.forgotten && now - road.missed_since > kAbsence * options_.silence)
      absent.push_back(id);
    if (road.calls && !road.forgotten && !road.connected && road.call_at > Nanos(0) && now >= road.call_at) {
      road.calling.clear();
      call(road);
    }
    if (!road.connected) continue;
    streams_->send_words(id, small_frame(kHeartbeat), {});
    auto heard = late ? now : std::max(road.heard, streams_->heard(id));
    if (heard > road.heard && !late) road.longest = std::max(heard - road.heard, road.longest - road.longest / 256);
    road.heard = heard;
    if (now - heard > std::max<Nanos>(options_.silence, 3 * road.longest)) silent.push_back(id);
  }
  for (auto id : silent) lose(id, "it was silent for too long");
  for (auto id : absent) {
    roads_[id].missed_since = Nanos(0);
    events_.on_lost(id, fmt::format("it could not be reached for {} ms", (kAbsence * options_.silence).count()));
  }
}

// ---- letters ----

void Roads::send(std::uint64_t id, const wire::Message& message) {
  auto packet = wire::encode(message);
  streams_->send_words(id, small_frame(kLetter), std::as_bytes(std::span(packet)));
}

Result<std::byte*> Roads::place_for(std::uint64_t, const FrameHeader& header, std::vector<std::byte>& lane_buffer) {
  bool beats = header.kind == kHeartbeat && header.bytes == 0;
  bool writes = header.kind == kLetter && header.bytes > 0 && header.bytes <= wire::kMaxPacket;
  if (!beats && !writes)
    return malformed(fmt::format("a frame of kind {} and {} bytes, outside of any view", header.kind, header.bytes));
  lane_buffer.resize(header.bytes);
  return lane_buffer.data();
}

Status Roads::on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) {
  if (header.kind != kLetter) return {};
  auto message = wire::decode({reinterpret_cast<const std::uint8_t*>(bytes), header.bytes});
  if (!message.ok()) return malformed("a letter that cannot be read: " + message.error().message);
  if (!limits_.unread.fits(from, header.bytes))
    return malformed(fmt::format("letters of more than {} bytes at once", Unread::kMost));
  loop_.post([this, alive = std::weak_ptr(alive_), from, unread = limits_.unread.add(from, header.bytes),
              letter = std::move(message).value()]() mutable {
    unread.read();
    if (alive.lock() && !limits_.offenders.contains(from)) events_.on_letter(from, std::move(letter));
  });
  return {};
}

}  // namespace pliant::collective
