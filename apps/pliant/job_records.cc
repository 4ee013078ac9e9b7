#include "apps/pliant/job_records.h"

#include <utility>

#include "apps/pliant/rescue.h"
#include "base/log.h"
#include "base/own_files.h"

namespace pliant::cli {

std::unique_ptr<record::RecordSink> open_records(const JobPlan& plan, const std::string& name) {
  auto folder = value_in(plan.env, "PLIANT_RECORD");
  if (folder.empty()) return nullptr;
  auto mode = parse_file_mode(value_in(plan.env, "PLIANT_FILE_MODE"));
  auto opened = record::Recorder::open(folder, name, mode.ok() ? mode.value() : 0600);
  if (opened.ok()) return std::move(opened).value();
  log::warn("{}", opened.error().message);
  return nullptr;
}

}  // namespace pliant::cli
