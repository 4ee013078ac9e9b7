#include "session/journal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "base/own_files.h"
#include "session/platform.h"

namespace pliant::session {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Status parse_every(const std::string& text, JournalOptions& options) {
  auto wrong =
      Error{Code::invalid, fmt::format("'{}' is neither a number of steps nor a time like 30s, 5m or 1h", text)};
  if (text.empty()) return wrong;
  std::uint64_t unit = text.back() == 's' ? 1 : text.back() == 'm' ? 60 : text.back() == 'h' ? 3600 : 0;
  auto value = number_in(std::string_view(text).substr(0, text.size() - (unit ? 1 : 0)));
  if (!value || *value == 0 || *value > 1'000'000'000) return wrong;
  options.every_steps = unit ? 0 : *value;
  if (unit) options.every_time = std::chrono::seconds(*value * unit);
  return {};
}

Result<JournalOptions> journal_options(const Platform& platform) {
  JournalOptions options;
  options.record_dir = platform.variable("PLIANT_RECORD").value_or("");
  options.checkpoint_dir = platform.variable("PLIANT_CHECKPOINT").value_or("");
  options.resume_dir = platform.variable("PLIANT_RESUME").value_or("");
  if (auto every = platform.variable("PLIANT_CHECKPOINT_EVERY")) PLIANT_TRY(parse_every(*every, options));
  if (auto keep = platform.variable("PLIANT_CHECKPOINT_KEEP")) {
    auto value = number_in(*keep);
    if (!value || *value == 0 || *value > 1'000'000)
      return Error{Code::invalid, fmt::format("PLIANT_CHECKPOINT_KEEP: '{}' is not a number from 1 on", *keep)};
    options.keep = static_cast<int>(*value);
  }
  if (auto wish = platform.variable("PLIANT_FILE_MODE")) {
    auto mode = parse_file_mode(*wish);
    if (!mode.ok()) return Error{mode.error().code, "PLIANT_FILE_MODE: " + mode.error().message};
    options.file_mode = mode.value();
  }
  return options;
}

Result<std::unique_ptr<record::RecordSink>> open_records(const JournalOptions& options, std::uint64_t worker) {
  if (options.record_dir.empty()) return std::unique_ptr<record::RecordSink>();
  auto recorder = record::Recorder::open(options.record_dir, fmt::format("worker-{}", worker), options.file_mode);
  if (!recorder.ok()) return recorder.error();
  return std::unique_ptr<record::RecordSink>(std::move(recorder).value());
}

Journal::Journal(JournalOptions options, std::uint64_t worker, Platform& platform,
                 std::unique_ptr<record::RecordSink> sink)
    : options_(std::move(options)),
      platform_(platform),
      worker_(worker),
      sink_(std::move(sink)),
      last_time_(platform.clock().now()) {}

void Journal::begin_lineage(std::uint64_t lineage, std::uint64_t steps, const std::string& folder) {
  if (sink_) sink_->write(record::BeginRecord{platform_.unix_time(), worker_, lineage, steps, folder});
}

void Journal::begin_loop() {
  begins_loop_ = true;
  ended_ = false;
}

void Journal::note(record::StepRecord record) {
  record.begins_loop = std::exchange(begins_loop_, false);
  newest_ = record.place();
  pending_.push_back(std::move(record));
}

void Journal::stable(std::uint64_t steps, double loss) {
  for (auto& record : pending_) {
    if (record.step + 1 == steps) record.loss = loss;
    if (sink_) sink_->write(record);
  }
  pending_.clear();
  if (writer_) writer_->stable(steps);
}

void Journal::adopt(std::vector<record::StepRecord> lines) {
  if (!sink_) return;
  for (auto& line : lines) {
    if (newest_ && line.place() <= *newest_) continue;
    newest_ = line.place();
    line.by = worker_;
    pending_.push_back(std::move(line));
  }
}

void Journal::end(record::Outcome outcome, std::uint64_t lineage, std::uint64_t steps) {
  if (std::exchange(ended_, true) || !sink_) return;
  stable(steps, std::nan(""));
  sink_->write(record::EndRecord{platform_.unix_time(), worker_, lineage, steps, outcome});
}

bool Journal::due(std::uint64_t steps) const {
  if (options_.checkpoint_dir.empty()) return false;
  bool began_again = steps < last_steps_;  // from a checkpoint before its own last one
  if (options_.every_steps) return began_again || steps >= last_steps_ + options_.every_steps;
  return platform_.clock().now() - last_time_ >= options_.every_time;
}

void Journal::checkpoint(Position position, const std::vector<StateItem>& items) {
  if (!writer_) writer_ = platform_.checkpoints().writer(options_.checkpoint_dir, options_.keep, options_.file_mode);
  auto steps = position.step;
  if (!writer_->begin(std::move(position), items)) return;  // the one before is still being written
  last_steps_ = steps;
  last_time_ = platform_.clock().now();
}

void Journal::last_checkpoint(Position position, const std::vector<StateItem>& items) {
  close(position.step);
  checkpoint(std::move(position), items);
}

void Journal::close(std::uint64_t steps) {
  if (!writer_) return;
  writer_->stable(steps);
  writer_->finish();
  writer_.reset();
}

}  // namespace pliant::session
