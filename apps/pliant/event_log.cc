#include "apps/pliant/event_log.h"

#include <chrono>
#include <string_view>

#include "base/log.h"

namespace pliant::cli {
namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void EventLog::open(const JobPlan& plan, const std::string& name) {
  constexpr std::string_view kKey = "PLIANT_RECORD=";
  for (const auto& entry : plan.env) {
    if (!entry.starts_with(kKey)) continue;
    auto opened = session::Recorder::open(entry.substr(kKey.size()), name);
    if (opened.ok())
      recorder_ = std::move(opened).value();
    else
      log::warn("{}", opened.error().message);
  }
}

void EventLog::note(const std::string& what, const std::string& text) {
  if (recorder_) recorder_->event(unix_seconds(), what, -1, text);
}

void EventLog::note(const std::string& what, std::uint64_t worker, const std::string& text) {
  if (recorder_) recorder_->event(unix_seconds(), what, static_cast<std::int64_t>(worker), text);
}

}  // namespace pliant::cli
