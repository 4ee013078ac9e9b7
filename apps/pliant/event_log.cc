#include "apps/pliant/event_log.h"

#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace pliant::cli {
void EventLog::open(const JobPlan& plan, const std::string& name) {
  constexpr std::string_view kKey = "PLIANT_RECORD=";
  for (const auto& entry : plan.env) {
    if (!entry.starts_with(kKey)) continue;
    auto opened = record::Recorder::open(entry.substr(kKey.size()), name);
    if (opened.ok())
      recorder_ = std::move(opened).value();
    else
      log::warn("{}", opened.error().message);
  }
}

void EventLog::note(const std::string& what, const std::string& text) {
  if (recorder_) recorder_->write(record::EventRecord{unix_seconds(), what, {}, text});
}

void EventLog::note(const std::string& what, std::uint64_t worker, const std::string& text) {
  if (recorder_) recorder_->write(record::EventRecord{unix_seconds(), what, worker, text});
}

}  // namespace pliant::cli
