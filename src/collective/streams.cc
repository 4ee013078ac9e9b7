#include "collective/streams.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fault.h"
#include "base/log.h"
#include "net/parts.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kRecord = 64 << 10;    // most bytes of a sealed record
constexpr std::size_t kOwnRecord = 4 << 10;  // a frame's bytes from this size on do not share a record with others
constexpr std::size_t kUnopened = 256 << 10;
constexpr std::size_t kStaging = 8192;       // what is read of a plain lane before it is known where it belongs
constexpr std::size_t kReadsPerTurn = 16;    // of one lane, before others get theirs
constexpr std::size_t kFramesPerWrite = 16;  // most that one system call takes
constexpr std::size_t kWorthWaiting = 32 << 10;
constexpr std::size_t kKeptBuffer = 16 << 10;  // of a lane, from frame to frame
constexpr std::uint64_t kWake = 0;

}  // namespace

struct Streams::Lane {
  std::uint64_t peer = 0;
  std::uint64_t number = 0;
  Fd socket;
  std::shared_ptr<const char> other_end;  // the same for all lanes of a peer, which may answer one through another

  std::mutex mutex;                         // of what is to be sent
  std::deque<Frame> outbox;                 // guarded by mutex
  std::size_t sent = 0;                     // of the first frame, header included; guarded by mutex
  bool writing = false;                     // the thread is told when the socket can be written; guarded by mutex
  bool closed = false;                      // guarded by mutex
  std::optional<net::RecordSealer> sealer;  // guarded by mutex; none if frames go as they are
  std::unique_ptr<std::uint8_t[]> record;   // of what was taken from the outbox, if there ever was; guarded by mutex
  std::size_t record_size = 0;              // guarded by mutex
  std::size_t record_sent = 0;              // guarded by mutex

  std::atomic<Nanos> heard{Nanos(0)};
  // What is being received: the thread's.
  std::optional<net::RecordOpener> opener;  // there is one if there is a sealer
  net::RecordSplitter records{kRecord};
  FrameHeader header;
  std::size_t received = 0;  // of header and bytes
  std::byte* place = nullptr;
  std::vector<std::byte> buffer;   // for frames that belong nowhere else
  std::uint64_t subscription = 0;  // whose the place is
  int least = 1;                   // bytes that must have come before it is worth a look
};

Streams::Streams(Told on_lost, Told on_offence)
    : on_lost_(std::move(on_lost)),
      on_offence_(std::move(on_offence)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      staging_(kRecord),
      unopened_(kUnopened) {
  if (!epoll_ || !wake_) throw Failure(Code::io, errno_error("epoll").message);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWake;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = std::thread([this] { run(); });
}

Streams::~Streams() {
  stopping_ = true;
  wake();
  thread_.join();
}

void Streams::wake() {
  std::uint64_t one = 1;
  [[maybe_unused]] auto written = write(wake_.get(), &one, sizeof(one));
}

// ---- lanes ----

void Streams::add(std::uint64_t peer, std::uint32_t lane, Fd socket, std::span<const std::uint8_t> received,
                  std::optional<net::ConnectionKeys> keys) {
  auto made = std::make_shared<Lane>();
  made->peer = peer;
  made->socket = std::move(socket);
  if (keys) {
    made->sealer.emplace(std::move(keys->send));
    made->opener.emplace(std::move(keys->receive));
  }
  {
    std::unique_lock while_places_are_used(sinks_mutex_);
    auto taken = keys ? open_all(*made, received) : take(*made, std::as_bytes(received));
    if (!taken.ok()) {
      while_places_are_used.unlock();
      return lose(peer, taken.error());
    }
  }
  std::lock_guard lock(mutex_);
  made->number = next_number_++;
  made->other_end = peers_[peer].empty() ? std::make_shared<const char>() : peers_[peer].begin()->second->other_end;
  if (auto& before = peers_[peer][lane]) by_number_.erase(before->number);
  peers_[peer][lane] = made;
  by_number_[made->number] = made;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = made->number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, made->socket.get(), &event);
}

void Streams::drop(std::uint64_t peer) {
  std::map<std::uint32_t, LanePtr> dropped;
  {
    std::lock_guard lock(mutex_);
    auto at = peers_.find(peer);
    if (at == peers_.end()) return;
    dropped = std::move(at->second);
    peers_.erase(at);
    for (const auto& [index, lane] : dropped) by_number_.erase(lane->number);
  }
  for (const auto& [index, lane] : dropped) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane->socket.get(), nullptr);
    shutdown(lane->socket.get(), SHUT_RDWR);
    std::lock_guard lock(lane->mutex);
    lane->closed = true;
    lane->outbox.clear();
  }
}

std::size_t Streams::lanes(std::uint64_t peer) const {
  std::lock_guard lock(mutex_);
  auto at = peers_.find(peer);
  return at == peers_.end() ? 0 : at->second.size();
}

Nanos Streams::heard(std::uint64_t peer) const {
  std::lock_guard lock(mutex_);
  auto last = Nanos(0);
  auto at = peers_.find(peer);
  if (at == peers_.end()) return last;
  for (const auto& [index, lane] : at->second) last = std::max(last, lane->heard.load(std::memory_order_relaxed));
  return last;
}

Streams::LanePtr Streams::lane_of(std::uint64_t peer, std::size_t lane) const {
  std::lock_guard lock(mutex_);
  auto at = peers_.find(peer);
  if (at == peers_.end() || at->second.empty()) return nullptr;
  return std::next(at->second.begin(), static_cast<std::ptrdiff_t>(lane % at->second.size()))->second;
}

void Streams::lose(std::uint64_t peer, const Error& why) {
  drop(peer);
  if (why.code != Code::protocol) return on_lost_(peer, why.message);
  on_offence_ ? on_offence_(peer, why.message) : on_lost_(peer, "it sent " + why.message);
}

// ---- sending ----

void Streams::send_words(std::uint64_t peer, const FrameHeader& header, std::span<const std::byte> bytes) {
  Frame frame{header, {}, {bytes.begin(), bytes.end()}, nullptr};
  frame.header.bytes = static_cast<std::uint32_t>(bytes.size());
  if (auto lane = lane_of(peer, 0)) send(lane, std::move(frame));
}

void Streams::send_data(std::uint64_t peer, std::size_t lane, const FrameHeader& header,
                        std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  PLIANT_ASSERT(bytes.size() <= FrameHeader::kMostBytes);
  Frame frame{header, bytes, {}, std::move(keep)};
  frame.header.bytes = static_cast<std::uint32_t>(bytes.size());
  auto there = lanes(peer);
  if (there == 0) return;
  if (auto chosen = lane_of(peer, there == 1 ? 0 : 1 + lane % (there - 1))) send(chosen, std::move(frame));
}

void Streams::send(const LanePtr& lane, Frame frame) {
  std::lock_guard lock(lane->mutex);
  if (lane->closed) return;
  auto& queued = lane->outbox.emplace_back(std::move(frame));
  if (!queued.own.empty()) queued.bytes = queued.own;
  if (!lane->writing && !write_to(*lane)) want_to_write(*lane, true);
}

/// Writes as much as fits: true if nothing is left. A broken connection is noticed by reading.
bool Streams::write_to(Lane& lane) { return lane.sealer ? write_sealed(lane) : write_plain(lane); }

bool Streams::write_plain(Lane& lane) {
  while (!lane.outbox.empty()) {
    std::array<iovec, 2 * kFramesPerWrite> parts{};
    std::size_t count = 0;
    auto skip = lane.sent;
    auto add = [&](const void* data, std::size_t size) {
      auto skipped = std::min(skip, size);
      skip -= skipped;
      if (size > skipped)
        parts[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, size - skipped};
    };
    auto frames = std::min(lane.outbox.size(), kFramesPerWrite);
    for (std::size_t i = 0; i < frames; ++i) {
      add(&lane.outbox[i].header, sizeof(FrameHeader));
      add(lane.outbox[i].bytes.data(), lane.outbox[i].bytes.size());
    }
    auto written = net::send_parts(lane.socket.get(), std::span(parts).first(count), lane.other_end.get());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (written < 0) {
      lane.outbox.clear();
      lane.sent = 0;
      return true;
    }
    lane.sent += static_cast<std::size_t>(written);
    while (!lane.outbox.empty()) {
      auto size = sizeof(FrameHeader) + lane.outbox.front().bytes.size();
      if (lane.sent < size) break;
      lane.sent -= size;
      lane.outbox.pop_front();
    }
  }
  return true;
}

bool Streams::write_sealed(Lane& lane) {
  for (;;) {
    if (lane.record_sent == lane.record_size) {
      if (lane.outbox.empty()) return true;
      seal_some(lane);
    }
    const iovec part{lane.record.get() + lane.record_sent, lane.record_size - lane.record_sent};
    auto written = net::send_parts(lane.socket.get(), {&part, 1}, lane.other_end.get());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (written < 0) {
      lane.outbox.clear();
      lane.sent = lane.record_size = lane.record_sent = 0;
      return true;
    }
    lane.record_sent += static_cast<std::size_t>(written);
  }
}

/// One record: of headers and small bytes what fits, or of large bytes the next piece.
void Streams::seal_some(Lane& lane) {
  std::array<std::span<const std::byte>, 2 * kFramesPerWrite> parts;
  std::size_t count = 0, size = 0;
  auto add = [&](std::span<const std::byte> bytes) {
    bytes = bytes.first(std::min(bytes.size(), kRecord - size));
    if (!bytes.empty()) parts[count++] = bytes;
    size += bytes.size();
    lane.sent += bytes.size();
  };
  std::size_t done = 0;  // frames
  while (done < std::min(lane.outbox.size(), kFramesPerWrite) && size < kRecord) {
    const auto& frame = lane.outbox[done];
    if (lane.sent < sizeof(FrameHeader)) add(std::as_bytes(std::span(&frame.header, 1)).subspan(lane.sent));
    bool alone = frame.bytes.size() >= kOwnRecord;
    if (lane.sent < sizeof(FrameHeader) || (alone && size > 0)) break;
    add(frame.bytes.subspan(lane.sent - sizeof(FrameHeader)));
    if (lane.sent < sizeof(FrameHeader) + frame.bytes.size()) break;
    lane.sent = 0;
    ++done;
    if (alone) break;
  }
  if (!lane.record) lane.record = std::make_unique_for_overwrite<std::uint8_t[]>(net::RecordSealer::size_of(kRecord));
  lane.record_size = net::RecordSealer::size_of(size);
  lane.record_sent = 0;
  lane.sealer->seal(std::span(parts).first(count), {lane.record.get(), lane.record_size});
  lane.outbox.erase(lane.outbox.begin(), lane.outbox.begin() + static_cast<std::ptrdiff_t>(done));
}

void Streams::want_to_write(Lane& lane, bool wanted) {
  lane.writing = wanted;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (wanted ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  event.data.u64 = lane.number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.socket.get(), &event);
}

// ---- receiving ----

Status Streams::begin_frame(Lane& lane) {
  auto sink = sinks_.find(lane.header.view);
  lane.place = nullptr;
  if (sink == sinks_.end()) return {};
  auto place = sink->second.sink->place_for(lane.peer, lane.header, lane.buffer);
  if (!place.ok()) return place.error();
  lane.place = place.value();
  lane.subscription = sink->second.number;
  return {};
}

/// A place is its sink's: when that is gone, the rest of the frame is dropped. Asked before every use, because the
/// thread may come to a lane that others have dropped or replaced in the meantime.
void Streams::check_place(Lane& lane) const {
  if (!lane.place) return;
  auto sink = sinks_.find(lane.header.view);
  if (sink == sinks_.end() || sink->second.number != lane.subscription) lane.place = nullptr;
}

Status Streams::end_frame(Lane& lane) {
  auto sink = sinks_.find(lane.header.view);
  Status taken;
  if (sink != sinks_.end() && (lane.place || lane.header.bytes == 0))
    taken = sink->second.sink->on_frame(lane.peer, lane.header, lane.place);
  lane.received = 0;
  lane.place = nullptr;
  if (lane.buffer.size() > kKeptBuffer) lane.buffer = {};
  return taken;
}

/// Takes bytes in that were read. Code::protocol if they are no frames, or break a rule.
Status Streams::take(Lane& lane, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (lane.received < sizeof(FrameHeader)) {
      auto part = std::min(bytes.size(), sizeof(FrameHeader) - lane.received);
      std::memcpy(reinterpret_cast<std::byte*>(&lane.header) + lane.received, bytes.data(), part);
      lane.received += part;
      bytes = bytes.subspan(part);
      if (lane.received < sizeof(FrameHeader)) return {};
      if (lane.header.magic != FrameHeader::kMagic || lane.header.bytes > FrameHeader::kLongest)
        return Error{Code::protocol, "something that is no frame"};
      PLIANT_TRY(begin_frame(lane));
    }
    auto at = lane.received - sizeof(FrameHeader);
    auto part = std::min<std::size_t>(bytes.size(), lane.header.bytes - at);
    if (lane.place) std::memcpy(lane.place + at, bytes.data(), part);
    lane.received += part;
    bytes = bytes.subspan(part);
    if (lane.received == sizeof(FrameHeader) + lane.header.bytes) PLIANT_TRY(end_frame(lane));
  }
  return {};
}

/// The rest of a large frame, or record, is worth one look, not one for every packet.
void Streams::look_when_complete(Lane& lane) {
  std::size_t missing = 1;
  if (lane.opener)
    missing = lane.records.missing();
  else if (lane.received >= sizeof(FrameHeader) && lane.place)
    missing = sizeof(FrameHeader) + lane.header.bytes - lane.received;
  auto least = static_cast<int>(missing >= kWorthWaiting ? missing : 1);
  if (least == lane.least) return;
  lane.least = least;
  setsockopt(lane.socket.get(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least));
}

/// Reads what there is. Code::peer_lost at the end; Code::protocol if it breaks a rule.
Status Streams::read_from(Lane& lane) {
  fault::point("before_read");
  std::lock_guard while_places_are_used(sinks_mutex_);
  check_place(lane);
  return lane.opener ? read_sealed(lane) : read_plain(lane);
}

Status Streams::read_plain(Lane& lane) {
  for (std::size_t turn = 0; turn < kReadsPerTurn; ++turn) {
    bool direct = lane.received >= sizeof(FrameHeader) && lane.place;
    auto at = lane.received - sizeof(FrameHeader);
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    if (direct) parts[count++] = {lane.place + at, lane.header.bytes - at};
    parts[count++] = {staging_.data(), kStaging};
    auto first = direct ? parts[0].iov_len : 0;
    auto got = net::receive_parts(lane.socket.get(), std::span(parts).first(count), lane.other_end.get());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      look_when_complete(lane);
      return {};
    }
    if (got <= 0) return Error{Code::peer_lost, got == 0 ? "it closed the connection" : std::strerror(errno)};
    lane.heard.store(clock_.now(), std::memory_order_relaxed);
    auto size = static_cast<std::size_t>(got);
    auto placed = std::min(size, first);
    lane.received += placed;
    if (direct && placed == first) PLIANT_TRY(end_frame(lane));
    if (size > placed) PLIANT_TRY(take(lane, std::span(staging_).first(size - placed)));
  }
  look_when_complete(lane);  // what is left in the socket may be less than what was waited for before
  return {};
}

Status Streams::read_sealed(Lane& lane) {
  for (std::size_t turn = 0; turn < kReadsPerTurn; ++turn) {
    auto room = lane.records.room();
    const std::array<iovec, 2> parts{{{room.data(), room.size()}, {unopened_.data(), unopened_.size()}}};
    auto got = net::receive_parts(lane.socket.get(), parts, lane.other_end.get());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) return Error{Code::peer_lost, got == 0 ? "it closed the connection" : std::strerror(errno)};
    lane.heard.store(clock_.now(), std::memory_order_relaxed);
    auto size = static_cast<std::size_t>(got), first = std::min(size, room.size());
    lane.records.commit(first);
    PLIANT_TRY(open_all(lane, std::span(unopened_).first(size - first)));
  }
  look_when_complete(lane);
  return {};
}

/// What does not open says nothing of the peer: anybody on the way may have altered or inserted it. Code::peer_lost.
Status Streams::open_all(Lane& lane, std::span<const std::uint8_t> bytes) {
  Status offence;
  auto cut = lane.records.feed(bytes, [&](auto body) {
    offence = open_record(lane, body);
    return offence;
  });
  if (!offence.ok() || cut.ok()) return offence;
  return Error{Code::peer_lost, cut.error().message};
}

/// Straight to where it belongs, if all of it belongs there.
Status Streams::open_record(Lane& lane, std::span<const std::uint8_t> body) {
  auto size = body.size() - net::RecordKey::kTag;
  bool in_frame = lane.received >= sizeof(FrameHeader) && lane.place;
  bool direct = in_frame && size <= sizeof(FrameHeader) + lane.header.bytes - lane.received;
  auto* plain = direct ? lane.place + (lane.received - sizeof(FrameHeader)) : staging_.data();
  if (auto opened = lane.opener->open(body, plain); !opened.ok()) return Error{Code::peer_lost, opened.error().message};
  if (!direct) return take(lane, std::span(staging_).first(size));
  lane.received += size;
  return lane.received == sizeof(FrameHeader) + lane.header.bytes ? end_frame(lane) : Status();
}

void Streams::subscribe(std::uint64_t view, FrameSink* sink) {
  std::lock_guard lock(sinks_mutex_);
  sinks_[view] = {sink, next_subscription_++};
}

void Streams::unsubscribe(std::uint64_t view) {
  std::lock_guard nothing_is_read(sinks_mutex_);
  sinks_.erase(view);
}

void Streams::run() {
  std::array<epoll_event, 64> events{};
  while (!stopping_.load(std::memory_order_acquire)) {
    int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < count && !stopping_.load(std::memory_order_acquire); ++i) {
      if (events[i].data.u64 == kWake) continue;
      LanePtr lane;
      {
        std::lock_guard lock(mutex_);
        auto at = by_number_.find(events[i].data.u64);
        if (at != by_number_.end()) lane = at->second;
      }
      if (!lane) continue;
      if (events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) {
        if (auto read = read_from(*lane); !read.ok()) {
          lose(lane->peer, read.error());
          continue;
        }
      }
      std::lock_guard lock(lane->mutex);
      if (lane->writing && (events[i].events & EPOLLOUT) && write_to(*lane)) want_to_write(*lane, false);
    }
  }
}

}  // namespace pliant::collective
