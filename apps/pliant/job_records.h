// Where a job's records go.
#pragma once

#include <memory>
#include <string>

#include "apps/pliant/job_dir.h"
#include "record/recorder.h"

namespace pliant::cli {

/// `name`.jsonl in the job's folder of records; nullptr if it has none, or that file cannot be written, which is one
/// warning.
std::unique_ptr<record::RecordSink> open_records(const JobPlan& plan, const std::string& name);

}  // namespace pliant::cli
