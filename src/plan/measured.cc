#include "plan/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "record/files.h"

namespace pliant::plan {
namespace {

struct Mean {
  double seconds = 0, batch = 0;
  std::uint64_t count = 0;
};

double samples_of(const record::StepRecord& record) {
  double samples = 0;
  for (const auto& contribution : record.samples)
    for (const auto& range : contribution.ranges) samples += static_cast<double>(range.end - range.begin);
  return samples;
}

}  // namespace

std::map<int, double> corrections_to(const scale::StepModel& model, const std::vector<scale::Observation>& shapes) {
  std::map<int, double> corrections;
  for (const auto& shape : shapes)
    corrections[shape.workers] = shape.seconds / model.seconds(shape.workers, shape.local_batch);
  return corrections;
}

double correction_at(const std::map<int, double>& corrections, int workers) {
  if (corrections.empty()) return 1;
  auto more = corrections.lower_bound(workers);
  if (more == corrections.end()) return std::prev(more)->second;
  if (more->first == workers || more == corrections.begin()) return more->second;
  auto fewer = std::prev(more);
  auto along = static_cast<double>(workers - fewer->first) / (more->first - fewer->first);
  return fewer->second + along * (more->second - fewer->second);
}

Result<Measured> read_measured(const std::string& dir) {
  record::Faults faults;
  auto logs = record::FileLogs::open(dir, faults);
  if (!logs.ok()) return logs.error();
  std::map<int, Mean> sizes;
  std::map<record::Place, double> samples;
  double stalls = 0;
  std::uint64_t changes = 0;
  for (std::size_t log = 0; log < logs.value().size(); ++log) {
    auto steps = record::StepSource::open(logs.value(), log, nullptr);
    if (!steps.ok()) return steps.error();
    record::StepRecord last;
    for (auto entry = steps.value().next(); entry; entry = steps.value().next()) {
      const auto& now = entry->record();
      samples.emplace(now.place(), samples_of(now));
      if (now.by) continue;  // another worker's step
      bool follows = last.size > 0 && now.lineage == last.lineage && now.step == last.step + 1;
      if (follows && now.view != last.view) {
        stalls += now.stall_ms / 1e3;
        ++changes;
      } else if (follows && now.t > last.t) {
        auto& mean = sizes[now.size];
        auto share = 1 / static_cast<double>(++mean.count);
        mean.seconds += share * (now.t - last.t - mean.seconds);
        mean.batch += share * (static_cast<double>(now.global_batch) - mean.batch);
      }
      last = now;
    }
  }
  Measured job;
  for (const auto& [size, mean] : sizes)
    if (mean.count >= 3) job.shapes.push_back({size, mean.batch / size, mean.seconds});
  if (job.shapes.empty()) return Error{Code::invalid, fmt::format("{}: too few steps to learn from", dir)};
  job.steps = samples.size();
  for (const auto& [place, count] : samples) job.samples += count;
  auto [small, large] =
      std::ranges::minmax(job.shapes, {}, [](const auto& shape) { return shape.local_batch * shape.workers; });
  bool in_all = job.shapes.size() > 1 && large.local_batch * large.workers <= 1.01 * small.local_batch * small.workers;
  (in_all ? job.global_batch : job.local_batch) =
      in_all ? large.local_batch * large.workers : job.shapes[0].local_batch;
  job.stall_seconds = changes > 0 ? stalls / static_cast<double>(changes) : 0;
  return job;
}

}  // namespace pliant::plan
