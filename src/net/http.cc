#include "net/http.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

namespace pliant::net {
namespace {

bool all_between(std::string_view text, char first, char last) {
  return std::ranges::all_of(text, [&](char c) { return c >= first && c <= last; });
}

/// A line break in any of these would begin another header, or another request.
bool can_be_written(const HttpRequest& request) {
  bool good = !request.method.empty() && all_between(request.method, 'A', 'Z') && request.method != "HEAD" &&
              request.path.starts_with('/') && all_between(request.path, '!', '~');
  for (const auto& [name, value] : request.headers)
    good = good && !name.empty() && all_between(name, '!', '~') && name.find(':') == std::string::npos &&
           all_between(value, ' ', '~');
  return good;
}

std::string text_of(const HttpRequest& request, const Endpoint& to) {
  auto text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method, request.path, to.text());
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (request.method != "GET" || !request.body.empty())
    text += fmt::format("Content-Length: {}\r\n", request.body.size());
  return text + "\r\n" + request.body;
}

}  // namespace

/// Shared: what was posted looks whether it is gone.
class HttpCall::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Loop& loop, const HttpServer& server, std::function<void(Result<HttpAnswer>)> on_end, HttpLimits limits)
      : loop_(loop), to_(server.endpoint), on_end_(std::move(on_end)), parser_(limits) {
    if (server.tls) tls_.emplace(server.tls, server.name);
  }

  void begin(const HttpRequest& request, std::chrono::milliseconds patience);
  void close();
  bool sent() const { return whole_ && all_sent(); }

 private:
  Status try_begin(const HttpRequest& request, std::chrono::milliseconds patience);
  void proceed();
  Result<bool> talk();
  Status send_some();
  Result<bool> receive_some();
  Status take_in(std::string_view bytes);
  bool all_sent() const { return sent_ == bytes_.size(); }
  void fail(const Error& error);
  void end(Result<HttpAnswer> result);

  Loop& loop_;
  Endpoint to_;
  std::function<void(Result<HttpAnswer>)> on_end_;
  HttpAnswerParser parser_;
  Fd socket_;
  bool connected_ = false;
  std::optional<TlsStream> tls_;
  std::string bytes_;     // to be sent
  std::size_t sent_ = 0;  // of bytes_
  bool whole_ = false;    // the request is in bytes_
  std::optional<Loop::Timer> limit_;
};

void HttpCall::Impl::begin(const HttpRequest& request, std::chrono::milliseconds patience) {
  auto begun = try_begin(request, patience);
  if (begun.ok()) return;
  loop_.post([weak = weak_from_this(), error = begun.error()] {
    if (auto self = weak.lock()) self->fail(error);
  });
}

Status HttpCall::Impl::try_begin(const HttpRequest& request, std::chrono::milliseconds patience) {
  if (!can_be_written(request)) return Error{Code::invalid, "a request that cannot be written as HTTP"};
  auto begun = tcp_connect(to_);
  if (!begun.ok()) return begun.error();
  auto text = text_of(request, to_);
  if (tls_) {
    tls_->write(text);
    PLIANT_TRY(take_in({}));  // its first bytes
  } else {
    bytes_ = std::move(text);
    whole_ = true;
  }
  socket_ = std::move(begun).value();
  loop_.watch(
      socket_.get(), [this] { proceed(); }, [this] { proceed(); });
  loop_.want_writable(socket_.get(), true);
  limit_ = loop_.every(patience, [this, patience] {
    fail({Code::peer_lost, fmt::format("no answer within {} ms", patience.count())});
  });
  return {};
}

void HttpCall::Impl::proceed() {
  auto answered = talk();
  if (!answered.ok()) return fail(answered.error());
  if (answered.value()) end(std::move(parser_).take());
}

/// True once there is an answer, even if the other end did not want to hear all of the question.
Result<bool> HttpCall::Impl::talk() {
  if (!connected_) PLIANT_TRY(tcp_connected(socket_));
  connected_ = true;
  auto answered = receive_some();
  if (!answered.ok() || answered.value()) return answered;
  PLIANT_TRY(send_some());
  return false;
}

Status HttpCall::Impl::send_some() {
  while (!all_sent()) {
    auto size = ::send(socket_.get(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) break;
    if (size < 0) return lost_connection(errno);
    sent_ += static_cast<std::size_t>(size);
  }
  loop_.want_writable(socket_.get(), !all_sent());
  return {};
}

Result<bool> HttpCall::Impl::receive_some() {
  std::array<char, 16 * 1024> chunk;
  auto size = recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size < 0) return lost_connection(errno);
  if (size > 0) PLIANT_TRY(take_in({chunk.data(), static_cast<std::size_t>(size)}));
  if (size == 0 && tls_ && !tls_->ended() && !parser_.done())
    return Error{Code::peer_lost, tls_->shook_hands() ? "it hung up in the middle of its answer"  // or was cut off
                                                      : "it hung up at once: perhaps it does not speak TLS"};
  if (size == 0) PLIANT_TRY(parser_.end());
  return parser_.done();
}

/// What comes from the other end; of TLS also what is to be sent because of it.
Status HttpCall::Impl::take_in(std::string_view bytes) {
  if (!tls_) return parser_.feed(bytes);
  std::string text;
  auto advanced = tls_->advance(bytes, text);
  bytes_ += std::exchange(tls_->outgoing(), {});
  whole_ = tls_->all_written();
  if (!advanced.ok() && socket_) (void)send_some();  // the other end should hear why
  if (!text.empty()) PLIANT_TRY(parser_.feed(text));
  return parser_.done() ? Status() : advanced;
}

void HttpCall::Impl::fail(const Error& error) { end(Error{error.code, to_.text() + ": " + error.message}); }

/// The last thing that anybody does here: the callback may destroy it.
void HttpCall::Impl::end(Result<HttpAnswer> result) {
  close();
  auto call = std::move(on_end_);
  call(std::move(result));
}

void HttpCall::Impl::close() {
  if (socket_) loop_.unwatch(socket_.get());
  socket_.reset();
  if (limit_) loop_.cancel(*limit_);
  limit_.reset();
}

HttpCall::HttpCall(Loop& loop, const HttpServer& server, const HttpRequest& request,
                   std::function<void(Result<HttpAnswer>)> on_end, std::chrono::milliseconds patience,
                   HttpLimits limits)
    : impl_(std::make_shared<Impl>(loop, server, std::move(on_end), limits)) {
  impl_->begin(request, patience);
}

HttpCall::~HttpCall() { impl_->close(); }

bool HttpCall::sent() const { return impl_->sent(); }

}  // namespace pliant::net
