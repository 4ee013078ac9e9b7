// Events in the job's records (--record): what the agent and the coordinator have to say. Nothing depends on them: what
// cannot be written is one warning, and the job goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/pliant/job_dir.h"
#include "record/recorder.h"

namespace pliant::cli {

class EventLog {
 public:
  /// From now on events go to `name`.jsonl in the job's folder of records, if it has one.
  void open(const JobPlan& plan, const std::string& name);
  void note(const std::string& what, const std::string& text);
  /// Of a worker.
  void note(const std::string& what, std::uint64_t worker, const std::string& text);

 private:
  std::unique_ptr<record::RecordSink> recorder_;  // nullptr: nothing is written
};

}  // namespace pliant::cli
