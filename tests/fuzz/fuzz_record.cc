// A line of a record by anybody: it is refused, or it is a record and comes back the same.
#include "fuzz/fuzz.h"
#include "session/record_line.h"

namespace pliant::fuzz {
namespace {

Bytes bytes_of(std::string line) {
  line.pop_back();  // its newline
  return {line.begin(), line.end()};
}

std::string line_of(const session::StepRecord& record) {
  std::string line;
  session::append_line(record, line);
  return line;
}

}  // namespace

std::vector<Bytes> seeds() {
  session::StepRecord record;
  record.size = 1;
  auto plain = line_of(record);
  record.dataset = record.global_batch = 100;
  record.samples = {{0, {{0, 64}, {70, 80}}}, {1, {}}};
  auto sampled = line_of(record);
  return {bytes_of(plain), bytes_of(sampled), bytes_of(session::event_line(1.5, "killed", 2, "a \"word\""))};
}

void run(std::span<const std::uint8_t> input) {
  auto line = session::decode_line({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!line || line.value().kind != session::Line::Kind::step) return;
  const auto& record = line.value().record;
  PLIANT_ASSERT(record.rank >= 0 && record.size >= 0 && record.step <= session::kLargestNumber);
  for (const auto& part : record.samples)
    for (const auto& range : part.ranges) PLIANT_ASSERT(range.begin <= range.end);
  auto written = line_of(record);
  written.pop_back();
  auto again = session::decode_line(written);
  PLIANT_ASSERT(again.ok() && line_of(again.value().record) == written + "\n");
}

}  // namespace pliant::fuzz
