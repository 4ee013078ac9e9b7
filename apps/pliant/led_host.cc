#include "apps/pliant/led_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pliant::cli {

using namespace std::chrono_literals;

LedHost::LedHost(HostSlots place, const std::string& dir)
    : place_(std::move(place)), output_(fmt::format("{}/host-{}.", dir, place_.name)) {}

void LedHost::want_again() {
  wanted_ = true;
  failures_ = 0;
}

void LedHost::led_by(WatchedProcess process, Nanos since) {
  process_ = std::move(process);
  since_ = since;
}

int LedHost::failed(Nanos now) {
  failures_ = now - since_ > kGoodRun ? 1 : failures_ + 1;
  return failures_;
}

void LedHost::try_again_later(Nanos now, bool has_begun) {
  again_at_ =
      now + std::min(kLongestPause, (has_begun ? kFirstPause : kPauseAtStart) * (1 << std::min(failures_ - 1, 9)));
}

std::vector<Error> LedHost::follow_output(bool from_now) {
  std::vector<Error> wrong;
  if (!tails_.empty()) return wrong;
  for (auto stream : {Stream::out, Stream::err}) {
    auto tail = OutputTail::open(output(stream == Stream::out ? "out" : "err"), stream, "", from_now);
    if (tail.ok())
      tails_.push_back(std::move(tail).value());
    else
      wrong.push_back(tail.error());
  }
  return wrong;
}

void LedHost::poll(Console& console) {
  for (auto& tail : tails_) tail.poll(console);
}

bool LedHost::drain(Console& console) {
  bool all = true;
  for (auto& tail : tails_) all = tail.drain(console) && all;
  return all;
}

}  // namespace pliant::cli
