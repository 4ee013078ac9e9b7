#include "apps/pliant/notice_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

namespace pliant::cli {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr net::HttpLimits kLimits{.head = 16 * 1024, .body = 64 * 1024};

Error bad_url(const std::string& url, const std::string& why) {
  return Error{
      Code::invalid,
      fmt::format("'{}' is not a URL like http://169.254.169.254/latest/meta-data/spot/instance-action: {}", url, why)};
}

bool is_name(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_path(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~' && c != '#'; });
}

/// Nothing if it is none.
std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  bool whole = code == std::errc() && end == text.data() + text.size();
  return whole && port > 0 ? std::optional(port) : std::nullopt;
}

/// Both clouds that want a header want to see that no browser was tricked into asking.
net::HttpRequest question(const std::string& path) {
  return {.path = path, .headers = {{"Metadata-Flavor", "Google"}, {"Metadata", "true"}}};
}

}  // namespace

// ---- where to ask ----

std::string NoticeUrl::text() const {
  auto place = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return fmt::format("http://{}{}{}", place, port == 80 ? "" : fmt::format(":{}", port), path);
}

Result<NoticeUrl> parse_notice_url(const std::string& url) {
  if (url.starts_with("https://")) return bad_url(url, "https is not spoken here, nor by metadata services");
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) return bad_url(url, "it does not begin with http://");
  rest.remove_prefix(kScheme.size());
  auto place = rest.substr(0, rest.find_first_of("/?#"));
  auto path = rest.substr(place.size());
  if (!is_path(path)) return bad_url(url, "a path cannot be written like this");
  NoticeUrl parsed;
  if (!path.empty()) parsed.path = (path.starts_with('/') ? "" : "/") + std::string(path);
  auto host_size = place.starts_with('[') ? std::min(place.find(']'), place.size() - 1) + 1 : place.find(':');
  auto host = place.substr(0, host_size);
  if (host.empty()) return bad_url(url, "no host");
  if (host.size() < place.size()) {
    auto port = parse_port(place.substr(host.size() + 1));
    if (place[host.size()] != ':' || !port) return bad_url(url, "a port is a number from 1 to 65535");
    parsed.port = *port;
  }
  parsed.host = host;
  if (is_name(host)) return parsed;
  auto six = host.starts_with('[') ? net::parse_endpoint(fmt::format("{}:{}", host, parsed.port))
                                   : Result<net::Endpoint>(Error{});
  if (!six.ok()) return bad_url(url, "neither a host's name nor an address");
  parsed.host = six.value().address;
  return parsed;
}

// ---- asking ----

NoticeWatch::NoticeWatch(net::Loop& loop, const NoticeUrl& url, OnNotice on_notice, OnTrouble on_trouble,
                         NoticePace pace, WallClock wall_clock)
    : loop_(loop),
      url_(url.text()),
      path_(url.path),
      on_notice_(std::move(on_notice)),
      on_trouble_(std::move(on_trouble)),
      pace_(pace),
      wall_clock_(std::move(wall_clock)) {
  auto address = net::resolve(url.host);
  if (address.ok()) {
    server_ = {address.value(), url.port};
    ask();
    return;
  }
  after(std::chrono::milliseconds(0), [this, why = address.error().message] {
    auto tell = on_trouble_;
    tell(fmt::format("{}: {}; no notice will be heard", url_, why));
  });
}

NoticeWatch::~NoticeWatch() {
  if (timer_) loop_.cancel(*timer_);
}

void NoticeWatch::call(const net::HttpRequest& request, void (NoticeWatch::*answered)(const net::HttpAnswer&)) {
  call_ = std::make_unique<net::HttpCall>(
      loop_, server_, request,
      [this, answered](const Result<net::HttpAnswer>& answer) {
        if (!answer.ok()) return fail(answer.error().message);
        (this->*answered)(answer.value());
      },
      pace_.patience, kLimits);
}

void NoticeWatch::ask() {
  auto request = question(path_);
  if (!token_.empty()) request.headers.emplace_back("X-aws-ec2-metadata-token", token_);
  call(request, &NoticeWatch::on_answer);
}

void NoticeWatch::on_answer(const net::HttpAnswer& answer) {
  auto now = std::chrono::floor<std::chrono::seconds>(wall_clock_());
  bool token_was_new = std::exchange(token_is_new_, false);
  auto understood = understand_notice(answer, now, name_);
  if (!understood.ok()) return fail(understood.error().message);
  switch (understood.value().kind) {
    case NoticeAnswer::Kind::nothing:
      failures_ = 0;
      return after(pace_.pause, [this] { ask(); });
    case NoticeAnswer::Kind::notice: {
      auto tell = on_notice_;
      return tell(understood.value().notice);
    }
    case NoticeAnswer::Kind::wants_token:
      return token_was_new ? fail("the token that it gave is not good enough for it") : ask_for_token();
    case NoticeAnswer::Kind::wants_name:
      return ask_for_name();
  }
}

void NoticeWatch::ask_for_token() {
  call({.method = "PUT", .path = "/latest/api/token", .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}},
       &NoticeWatch::on_token);
}

void NoticeWatch::on_token(const net::HttpAnswer& answer) {
  auto token = understand_token(answer);
  if (!token.ok()) return fail("no token: " + token.error().message);
  token_ = std::move(token).value();
  token_is_new_ = true;
  ask();
}

void NoticeWatch::ask_for_name() {
  call(question("/metadata/instance/compute/name?api-version=2021-02-01&format=text"), &NoticeWatch::on_name);
}

void NoticeWatch::on_name(const net::HttpAnswer& answer) {
  auto name = understand_name(answer);
  if (!name.ok()) return fail("no name of this machine: " + name.error().message);
  name_ = std::move(name).value();
  ask();
}

// ---- when it does not work ----

std::chrono::milliseconds NoticeWatch::pause_after(int failures, const NoticePace& pace) {
  auto pause = pace.pause;
  for (int i = kTrouble; i <= failures && pause < pace.longest_pause; ++i) pause *= 2;
  return failures < kTrouble ? pause : std::min(pause, pace.longest_pause);
}

void NoticeWatch::fail(const std::string& why) {
  ++failures_;
  after(pause_after(failures_, pace_), [this] { ask(); });
  if (failures_ != kTrouble) return;
  auto tell = on_trouble_;
  tell(fmt::format("{}: {}; asked {} times, and on and on, but more rarely", url_, why, failures_));
}

/// Once.
void NoticeWatch::after(std::chrono::milliseconds pause, std::function<void()> next) {
  timer_ = loop_.every(pause, [this, next = std::move(next)] {
    loop_.cancel(*timer_);
    timer_.reset();
    next();
  });
}

}  // namespace pliant::cli
