#include "agent/event_log.h"

#include <utility>

namespace pliant::agent {

void EventLog::open(std::unique_ptr<record::RecordSink> sink, std::function<double()> time) {
  sink_ = std::move(sink);
  time_ = std::move(time);
}

void EventLog::note(const std::string& what, const std::string& text) {
  if (sink_) sink_->write(record::EventRecord{time_(), what, {}, text});
}

void EventLog::note(const std::string& what, std::uint64_t worker, const std::string& text) {
  if (sink_) sink_->write(record::EventRecord{time_(), what, worker, text});
}

}  // namespace pliant::agent
