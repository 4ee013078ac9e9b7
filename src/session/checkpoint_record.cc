#include "session/checkpoint_record.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "base/hash.h"
#include "session/safetensors.h"

namespace pliant::session {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Older versions that are still read.
constexpr std::uint64_t kWithoutAdaptation = 1, kWithAdaptation = 2;
constexpr int kDeepest = 4;  // the numbers of a ledger's returned range

/// Numbers of 64 bits that are not counts are text: many JSON readers would round them.
std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

ordered_json to_json(const step::Ledger& ledger) {
  auto all = ledger.snapshot();
  auto returned = ordered_json::array();
  for (const auto& range : all.returned) returned.push_back({range.begin, range.end});
  return {{"samples", all.samples}, {"epoch", all.epoch}, {"fresh", all.fresh}, {"returned", returned}};
}

ordered_json to_json(const CheckpointRecord& record) {
  const auto& at = record.position;
  ordered_json all = {{"version", record.version},
                      {"job", at.job},
                      {"step", at.step},
                      {"samples", at.samples},
                      {"seed", at.seed},
                      {"lineage", at.lineage},
                      {"workers", at.workers},
                      {"local_batch", at.local_batch},
                      {"global_batch", at.global_batch},
                      {"digest", hex(at.digest)},
                      {"ledger", at.ledger ? to_json(*at.ledger) : ordered_json(nullptr)},
                      {"state", {{"bytes", record.state.bytes}, {"digest", hex(record.state.digest)}}}};
  if (!at.adaptation.empty()) all["adaptation"] = to_base64(at.adaptation);
  if (record.version > kWithAdaptation && at.loop > 0) all["loop"] = at.loop;
  if (record.version > kWithAdaptation && at.begins_loop) all["begins_loop"] = true;
  return all;
}

std::string to_text(const ordered_json& all, int indent) {
  return all.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string check_of(const CheckpointRecord& record) {
  auto text = to_text(to_json(record), -1);
  return hex(digest_bytes(text.data(), text.size()));
}

/// Takes fields out by their types. After the first that is missing or another, the rest gives zeros.
class RecordReader {
 public:
  CheckpointRecord record(const json& from);
  std::string text(const json& from, const char* name);
  /// Empty if all went well.
  const std::string& problem() const { return problem_; }

 private:
  void wrong(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
  }
  const json& field(const json& from, const char* name);
  std::uint64_t whole(const json& value, const char* name);
  std::uint64_t number(const json& from, const char* name) { return whole(field(from, name), name); }
  std::uint64_t digest(const json& from, const char* name);
  std::optional<step::Ledger> ledger(const json& from);

  std::string problem_;
};

const json& RecordReader::field(const json& from, const char* name) {
  static const json kNothing;
  auto found = from.is_object() ? from.find(name) : from.end();
  if (found != from.end()) return *found;
  wrong(fmt::format("no field '{}'", name));
  return kNothing;
}

std::uint64_t RecordReader::whole(const json& value, const char* name) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  wrong(fmt::format("'{}' is no whole number", name));
  return 0;
}

std::string RecordReader::text(const json& from, const char* name) {
  const auto& value = field(from, name);
  if (value.is_string()) return value.get<std::string>();
  wrong(fmt::format("'{}' is no text", name));
  return {};
}

std::uint64_t RecordReader::digest(const json& from, const char* name) {
  auto digits = text(from, name);
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (hex(value) != digits) wrong(fmt::format("'{}' is no digest", name));
  return value;
}

std::optional<step::Ledger> RecordReader::ledger(const json& from) {
  if (from.is_null()) return std::nullopt;
  step::Ledger::Snapshot all{number(from, "samples"), number(from, "epoch"), number(from, "fresh"), {}};
  const auto& returned = field(from, "returned");
  if (!returned.is_array()) wrong("'returned' is no list");
  for (const auto& range : returned) {
    if (!range.is_array() || range.size() != 2) {
      wrong("a returned range is no pair of numbers");
      break;
    }
    all.returned.push_back({whole(range[0], "returned"), whole(range[1], "returned")});
  }
  auto ledger = step::Ledger::restore(std::move(all));
  if (ledger) return std::move(ledger).value();
  wrong(ledger.error().message);
  return std::nullopt;
}

CheckpointRecord RecordReader::record(const json& from) {
  CheckpointRecord record;
  record.version = number(from, "version");
  if (record.version < kWithoutAdaptation || record.version > CheckpointRecord::kVersion)
    wrong(fmt::format("version {}, only {} to {} are read", record.version, kWithoutAdaptation,
                      CheckpointRecord::kVersion));
  auto& at = record.position;
  at.job = text(from, "job");
  at.step = number(from, "step");
  at.samples = number(from, "samples");
  at.seed = number(from, "seed");
  at.lineage = number(from, "lineage");
  auto workers = number(from, "workers");
  if (workers > std::numeric_limits<int>::max()) wrong(fmt::format("{} workers", workers));
  at.workers = static_cast<int>(workers);
  at.local_batch = number(from, "local_batch");
  at.global_batch = number(from, "global_batch");
  at.digest = digest(from, "digest");
  at.ledger = ledger(field(from, "ledger"));
  if (record.version == kWithAdaptation || (record.version > kWithAdaptation && from.contains("adaptation"))) {
    auto adaptation = from_base64(text(from, "adaptation"));
    if (!adaptation.ok() || adaptation.value().empty()) wrong("'adaptation' is not what it should be");
    if (adaptation.ok()) at.adaptation = std::move(adaptation).value();
  }
  if (record.version > kWithAdaptation && from.contains("loop")) at.loop = number(from, "loop");
  at.begins_loop = record.version > kWithAdaptation && from.contains("begins_loop") && from["begins_loop"] == true;
  const auto& state = field(from, "state");
  record.state = {number(state, "bytes"), digest(state, "digest")};
  return record;
}

}  // namespace

std::string encode_record(const CheckpointRecord& record) {
  auto all = to_json(record);
  all["check"] = check_of(record);
  return to_text(all, 2) + "\n";
}

Result<CheckpointRecord> decode_record(std::string_view text) {
  json from;
  try {
    // What is nested deeper than a record is dropped while it is parsed, and then missed.
    from = json::parse(text, [](int depth, json::parse_event_t, const json&) { return depth <= kDeepest; });
  } catch (const json::parse_error& problem) {
    return Error{Code::protocol, fmt::format("not JSON at byte {}", problem.byte)};
  } catch (const json::exception&) {
    return Error{Code::protocol, "not JSON"};  // a number beyond all bounds
  }
  RecordReader reader;
  auto record = reader.record(from);
  auto check = reader.text(from, "check");
  if (!reader.problem().empty()) return Error{Code::protocol, reader.problem()};
  if (check != check_of(record)) return Error{Code::protocol, "altered: its own digest is another"};
  if (record.version < CheckpointRecord::kVersion) record.position.digest = 0;
  return record;
}

}  // namespace pliant::session
