#include "net/gate.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/log.h"

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kTick = 100ms;
constexpr std::chrono::milliseconds kBetweenLogs = 1s;
constexpr std::chrono::milliseconds kPace = 10ms;
constexpr int kCrowd = 16;  // strangers within kTick

Error hung_up() { return Error{Code::peer_lost, "it hung up during the handshake"}; }

Status say(const Fd& socket, Handshake& shake) {
  auto text = shake.take_output();
  if (text.empty()) return {};
  auto sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A few bytes on a fresh connection always fit, so there is no need to keep a part of them for later.
  if (sent != static_cast<ssize_t>(text.size())) return hung_up();
  return {};
}

/// Takes in what has come, and answers. True once both sides are convinced; `rest` is what came behind the handshake.
Result<bool> talk(const Fd& socket, Handshake& shake, std::vector<std::uint8_t>& rest) {
  std::array<std::uint8_t, 4096> chunk;
  auto size = recv(socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) return hung_up();
  auto used = shake.feed({chunk.data(), static_cast<std::size_t>(size)});
  if (!used.ok()) return used.error();
  PLIANT_TRY(say(socket, shake));
  if (!shake.done()) return false;
  rest.assign(chunk.begin() + static_cast<std::ptrdiff_t>(used.value()), chunk.begin() + size);
  return true;
}

}  // namespace

// ---- the answering side ----

/// Callbacks hold it while they run: the gate may be destroyed in any of them.
class Gate::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Loop& loop, Fd listener, Secret secret, std::string job, std::function<void(Guest)> on_guest,
       GateOptions options)
      : loop_(loop),
        listener_(std::move(listener)),
        secret_(std::move(secret)),
        job_(std::move(job)),
        on_guest_(std::move(on_guest)),
        options_(std::move(options)) {}

  void open();
  void close();
  std::uint64_t refused() const { return refused_; }
  std::size_t pending() const { return visitors_.size(); }

 private:
  struct Visitor {
    Fd socket;
    Handshake shake;
    Nanos since;
  };
  using Visitors = std::map<std::uint64_t, Visitor>;  // by the order of their coming

  std::size_t accept_some();
  void admit(Fd socket);
  void hear(std::uint64_t number);
  Visitor take(Visitors::iterator at);
  void refuse(const std::string& why);
  bool may_log();
  void report();
  void count_crowd();
  void pace();
  void pause(const std::string& why);
  void need_ticks();
  void tick();
  void drop_the_late();

  Loop& loop_;
  Fd listener_;
  Secret secret_;
  std::string job_;
  std::function<void(Guest)> on_guest_;
  GateOptions options_;

  SteadyClock clock_;
  Visitors visitors_;
  std::uint64_t next_number_ = 0;
  bool closed_ = false;
  bool accepts_ = false;               // off for a moment when there are no descriptors left, or a crowd
  std::optional<Loop::Timer> pacing_;  // while there is a crowd
  Nanos crowd_since_{0};
  int crowd_ = 0;
  std::optional<Loop::Timer> ticks_;  // only while there is something to wait for
  std::uint64_t refused_ = 0;
  std::uint64_t unreported_ = 0;
  std::string last_reason_;
  std::optional<Nanos> last_log_;
};

void Gate::Impl::open() {
  accepts_ = true;
  loop_.watch(listener_.get(), [this] { accept_some(); });
}

void Gate::Impl::close() {
  closed_ = true;
  if (accepts_) loop_.unwatch(listener_.get());
  listener_.reset();
  while (!visitors_.empty()) take(visitors_.begin());
  if (pacing_) loop_.cancel(*pacing_);
  if (ticks_) loop_.cancel(*ticks_);
}

std::size_t Gate::Impl::accept_some() {
  auto self = shared_from_this();
  std::size_t came = 0;
  for (; came < options_.accepts_per_turn && !closed_; ++came) {
    auto socket = tcp_accept(listener_);
    if (!socket.ok()) pause(socket.error().message);
    if (!socket.ok() || !socket.value()) break;
    admit(std::move(*socket.value()));
  }
  return came;
}

void Gate::Impl::admit(Fd socket) {
  if (!visitors_.empty() && visitors_.size() >= options_.most_pending) {
    take(visitors_.begin());
    refuse("the oldest of too many at once");
  }
  auto number = next_number_++;
  int fd = socket.get();
  visitors_.emplace(number, Visitor{std::move(socket), Handshake::answer(secret_, job_), clock_.now()});
  need_ticks();
  hear(number);  // many have spoken already, and most strangers are gone then
  if (!closed_ && visitors_.contains(number)) loop_.watch(fd, [this, number] { hear(number); });
}

void Gate::Impl::hear(std::uint64_t number) {
  auto self = shared_from_this();
  auto at = visitors_.find(number);
  std::vector<std::uint8_t> rest;
  auto convinced = talk(at->second.socket, at->second.shake, rest);
  if (convinced.ok() && !convinced.value()) return;
  auto visitor = take(at);
  if (!convinced.ok()) return refuse(convinced.error().message);
  Guest guest{visitor.shake.introduction(), std::move(visitor.socket), std::move(rest), visitor.shake.take_keys()};
  auto objection = options_.objection ? options_.objection(guest.who) : std::string();
  if (closed_) return;
  if (!objection.empty()) return refuse(objection);
  on_guest_(std::move(guest));
}

Gate::Impl::Visitor Gate::Impl::take(Visitors::iterator at) {
  auto visitor = std::move(at->second);
  loop_.unwatch(visitor.socket.get());
  visitors_.erase(at);
  return visitor;
}

void Gate::Impl::refuse(const std::string& why) {
  ++refused_;
  ++unreported_;
  last_reason_ = why;
  count_crowd();
  report();
}

void Gate::Impl::count_crowd() {
  auto now = clock_.now();
  if (now - crowd_since_ >= kTick) {
    crowd_since_ = now;
    crowd_ = 0;
  }
  if (++crowd_ >= kCrowd) pace();
}

/// In a crowd of strangers the door is looked at now and then, not for each of them: every one would wake this thread,
/// and take the core from who computes on it.
void Gate::Impl::pace() {
  if (pacing_ || closed_) return;
  if (accepts_) loop_.unwatch(listener_.get());
  accepts_ = false;
  pacing_ = loop_.every(kPace, [this] {
    auto self = shared_from_this();
    if (accept_some() > 0 || closed_) return;
    loop_.cancel(*pacing_);
    pacing_.reset();
    open();
  });
}

/// Strangers must not be able to fill a log.
bool Gate::Impl::may_log() {
  auto now = clock_.now();
  if (last_log_ && now - *last_log_ < kBetweenLogs) return false;
  last_log_ = now;
  return true;
}

void Gate::Impl::report() {
  if (unreported_ == 0) return;
  if (!may_log()) return need_ticks();
  log::warn("turned away {} connection{}, the last one because: {}", unreported_, unreported_ == 1 ? "" : "s",
            last_reason_);
  unreported_ = 0;
}

/// Who waits outside goes on waiting, without making this loop turn as fast as it can.
void Gate::Impl::pause(const std::string& why) {
  if (accepts_) loop_.unwatch(listener_.get());
  accepts_ = false;
  if (may_log()) log::warn("cannot take connections for a moment: {}", why);
  need_ticks();
}

void Gate::Impl::need_ticks() {
  if (ticks_) return;
  auto period = std::clamp(options_.patience, std::chrono::milliseconds(1), kTick);
  ticks_ = loop_.every(period, [this] { tick(); });
}

void Gate::Impl::tick() {
  if (!accepts_ && !pacing_) open();
  drop_the_late();
  report();
  if (!visitors_.empty() || unreported_ > 0) return;
  loop_.cancel(*ticks_);
  ticks_.reset();
}

void Gate::Impl::drop_the_late() {
  auto now = clock_.now();
  while (!visitors_.empty() && now - visitors_.begin()->second.since >= options_.patience) {
    take(visitors_.begin());
    refuse(fmt::format("no proof within {} ms", options_.patience.count()));
  }
}

Gate::Gate(Loop& loop, Fd listener, Secret secret, std::string job, std::function<void(Guest)> on_guest,
           GateOptions options)
    : impl_(std::make_shared<Impl>(loop, std::move(listener), std::move(secret), std::move(job), std::move(on_guest),
                                   std::move(options))) {
  impl_->open();
}

Gate::~Gate() { impl_->close(); }

std::uint64_t Gate::refused() const { return impl_->refused(); }

std::size_t Gate::pending() const { return impl_->pending(); }

// ---- the calling side ----

/// Callbacks hold it while they run, as above.
class Call::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Loop& loop, const Endpoint& to, const Secret& secret, Introduction who,
       std::function<void(Result<Guest>)> on_end)
      : loop_(loop), to_(to), shake_(Handshake::call(secret, std::move(who))), on_end_(std::move(on_end)) {}

  void begin(const std::string& from, std::chrono::milliseconds patience);
  void close();

 private:
  void proceed();
  Status greet();
  void wait_at_most(std::chrono::milliseconds patience);
  void fail(const Error& error);
  void end(Result<Guest> result);

  Loop& loop_;
  Endpoint to_;
  Handshake shake_;
  std::chrono::milliseconds patience_{0};  // for the handshake
  std::function<void(Result<Guest>)> on_end_;
  Fd socket_;
  bool connected_ = false;
  std::optional<Loop::Timer> limit_;
};

void Call::Impl::begin(const std::string& from, std::chrono::milliseconds patience) {
  auto begun = tcp_connect(to_, from);
  if (!begun.ok()) {  // nobody expects to be called back before the constructor has returned
    loop_.post([weak = weak_from_this(), error = begun.error()] {
      if (auto self = weak.lock()) self->end(error);
    });
    return;
  }
  socket_ = std::move(begun).value();
  loop_.watch(
      socket_.get(), [this] { proceed(); }, [this] { proceed(); });
  loop_.want_writable(socket_.get(), true);
  patience_ = patience;
  wait_at_most(std::min(patience, Call::kTimeToConnect));
}

void Call::Impl::wait_at_most(std::chrono::milliseconds patience) {
  if (limit_) loop_.cancel(*limit_);
  limit_ = loop_.every(patience, [this, patience] {
    fail({Code::io, fmt::format("no answer within {} ms", patience.count())});
  });
}

void Call::Impl::proceed() {
  if (!connected_) {
    if (auto status = greet(); !status.ok()) fail(status.error());
    return;
  }
  std::vector<std::uint8_t> rest;
  auto convinced = talk(socket_, shake_, rest);
  if (!convinced.ok()) return fail(convinced.error());
  if (!convinced.value()) return;
  loop_.unwatch(socket_.get());
  end(Guest{shake_.introduction(), std::move(socket_), std::move(rest), shake_.take_keys()});
}

Status Call::Impl::greet() {
  PLIANT_TRY(tcp_connected(socket_));
  connected_ = true;
  wait_at_most(patience_);
  loop_.want_writable(socket_.get(), false);
  return say(socket_, shake_);
}

void Call::Impl::fail(const Error& error) {
  // Whoever is refused is told nothing: these are the likely reasons.
  bool silent = connected_ && error.code == Code::peer_lost;
  auto guess = silent ? " (another job, secret or version, or too busy)" : "";
  end(Error{error.code, to_.text() + ": " + error.message + guess});
}

void Call::Impl::end(Result<Guest> result) {
  auto self = shared_from_this();
  close();
  auto call = std::move(on_end_);
  call(std::move(result));
}

void Call::Impl::close() {
  if (socket_) loop_.unwatch(socket_.get());
  socket_.reset();
  if (limit_) loop_.cancel(*limit_);
  limit_.reset();
}

Call::Call(Loop& loop, const Endpoint& to, const std::string& from_address, const Secret& secret, Introduction who,
           std::function<void(Result<Guest>)> on_end, std::chrono::milliseconds patience)
    : impl_(std::make_shared<Impl>(loop, to, secret, std::move(who), std::move(on_end))) {
  impl_->begin(from_address, patience);
}

Call::~Call() { impl_->close(); }

}  // namespace pliant::net
