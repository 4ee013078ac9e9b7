// A line of a record by anybody: it is refused, or it is a record and comes back the same.
#include "fuzz/fuzz.h"
#include "record/line.h"

namespace pliant::fuzz {
namespace {

Bytes bytes_of(std::string line) {
  line.pop_back();  // its newline
  return {line.begin(), line.end()};
}

std::string line_of(const record::Line& record) {
  std::string line;
  record::append_line(record, line);
  return line;
}

}  // namespace

std::vector<Bytes> seeds() {
  record::StepRecord record;
  record.size = 1;
  auto plain = line_of(record);
  record.dataset = record.global_batch = 100;
  record.samples = {{0, {{0, 64}, {70, 80}}}, {1, {}}};
  record.samples[1].by = 2;
  record.lease = {3, 4, {0, 1, 2}};
  record.took = {{0, 64}};
  record.by = 2;
  record.delivered = record.begins_loop = true;
  auto sampled = line_of(record);
  record.version = 1;
  return {bytes_of(plain),
          bytes_of(sampled),
          bytes_of(line_of(record)),
          bytes_of(line_of(record::BeginRecord{1.5, 2, 1, 20, "a \"word\""})),
          bytes_of(line_of(record::EndRecord{1.5, 2, 1, 75, record::Outcome::stopped})),
          bytes_of(line_of(record::EventRecord{1.5, "killed", 2, "a \"word\""}))};
}

void run(std::span<const std::uint8_t> input) {
  auto line = record::decode_line({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!line.ok()) return;
  if (const auto* record = std::get_if<record::StepRecord>(&line.value())) {
    PLIANT_ASSERT(record->rank >= 0 && record->size >= 0 && record->step <= record::kLargestNumber);
    for (const auto& range : record->took) PLIANT_ASSERT(range.begin <= range.end);
    for (const auto& part : record->samples)
      for (const auto& range : part.ranges) PLIANT_ASSERT(range.begin <= range.end);
  }
  auto written = line_of(line.value());
  written.pop_back();
  auto again = record::decode_line(written);
  PLIANT_ASSERT(again.ok() && line_of(again.value()) == written + "\n");
}

}  // namespace pliant::fuzz
