// Events in the job's records (--record): what the agent and the coordinator have to say. Nothing depends on them: what
// cannot be written is one warning, and the job goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "record/recorder.h"

namespace pliant::agent {

class EventLog {
 public:
  /// From now on events go there, with what `time` says in seconds since 1970; nowhere if there is no sink.
  void open(std::unique_ptr<record::RecordSink> sink, std::function<double()> time = &unix_seconds);
  void note(const std::string& what, const std::string& text);
  /// Of a worker.
  void note(const std::string& what, std::uint64_t worker, const std::string& text);

 private:
  std::unique_ptr<record::RecordSink> sink_;  // nullptr: nothing is written
  std::function<double()> time_;
};

}  // namespace pliant::agent
