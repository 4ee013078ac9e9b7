#include "record/line.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace pliant::record {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 5> kOutcomes = {"finished", "stopped", "left", "quit", "failed"};

void append_number(double value, std::string& out) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), value);
  else
    out += "null";
}

double finite(double value) { return std::isfinite(value) ? value : 0; }

std::string quoted(const std::string& words) {
  return json(words).dump(-1, ' ', false, json::error_handler_t::replace);
}

void append_ranges(const std::vector<Range>& ranges, std::string& out) {
  out += '[';
  for (const auto& range : ranges) {
    if (out.back() == ']') out += ',';
    fmt::format_to(std::back_inserter(out), FMT_COMPILE("[{},{}]"), range.begin, range.end);
  }
  out += ']';
}

void append_samples(const StepRecord& record, std::string& out) {
  for (const auto& part : record.samples) {
    if (out.back() == '}') out += ',';
    fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"({{"worker":{},"epoch":{},"ranges":)"), part.worker,
                   record.epoch);
    append_ranges(part.ranges, out);
    if (part.by) fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(,"by":{})"), *part.by);
    out += '}';
  }
}

/// What version 1 does not have.
void append_proof(const StepRecord& record, std::string& out) {
  if (record.by) fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(,"by":{})"), *record.by);
  if (record.delivered) out += R"(,"delivered":true)";
  if (record.begins_loop) out += R"(,"begins_loop":true)";
  fmt::format_to(std::back_inserter(out),
                 FMT_COMPILE(R"(,"lease_view":{},"lease_view_hash":"{:016x}","lease_workers":[)"), record.lease.view,
                 record.lease.hash);
  for (auto worker : record.lease.workers) {
    if (out.back() != '[') out += ',';
    fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), worker);
  }
  out += R"(],"took":)";
  append_ranges(record.took, out);
  fmt::format_to(std::back_inserter(out),
                 FMT_COMPILE(R"(,"digest_before":"{:016x}","ledger_before":"{:016x}","ledger_after":"{:016x}")"),
                 record.digest.before, record.ledger.before, record.ledger.after);
}

void append(const StepRecord& record, std::string& out) {
  out += R"({"kind":"step")";
  if (record.version > 1) fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(,"version":{})"), record.version);
  fmt::format_to(std::back_inserter(out),
                 FMT_COMPILE(R"(,"t":{:.6f},"step":{},"view":{},"view_hash":"{:016x}","worker":{},)"
                             R"("rank":{},"size":{},"epoch":{},"dataset":{},"samples":[)"),
                 finite(record.t), record.step, record.view, record.view_hash, record.worker, record.rank, record.size,
                 record.epoch, record.dataset);
  append_samples(record, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(],"global_batch":{},"lr":)"), record.global_batch);
  append_number(record.lr, out);
  out += R"(,"loss":)";
  append_number(record.loss, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(,"digest":"{:016x}","stall_ms":)"), record.digest.after);
  append_number(record.stall_ms, out);
  if (record.version > 1) append_proof(record, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(",\"lineage\":{}}}\n"), record.lineage);
}

void append(const BeginRecord& record, std::string& out) {
  out += fmt::format(R"({{"kind":"begin","version":{},"t":{:.6f},"worker":{},"lineage":{},"steps":{},"text":{}}})",
                     kVersion, finite(record.t), record.worker, record.lineage, record.steps, quoted(record.text)) +
         "\n";
}

void append(const EndRecord& record, std::string& out) {
  out += fmt::format(R"({{"kind":"end","version":{},"t":{:.6f},"worker":{},"lineage":{},"steps":{},"outcome":"{}"}})",
                     kVersion, finite(record.t), record.worker, record.lineage, record.steps, name_of(record.outcome)) +
         "\n";
}

void append(const EventRecord& record, std::string& out) {
  out += fmt::format(R"({{"kind":"event","t":{:.6f},"event":{})", finite(record.t), quoted(record.event));
  if (record.worker) out += fmt::format(R"(,"worker":{})", *record.worker);
  out += fmt::format(R"(,"text":{}}})", quoted(record.text)) + "\n";
}

}  // namespace

const char* name_of(Outcome outcome) { return kOutcomes[static_cast<std::size_t>(outcome)]; }

std::optional<Outcome> outcome_named(const std::string& name) {
  for (std::size_t i = 0; i < kOutcomes.size(); ++i)
    if (name == kOutcomes[i]) return static_cast<Outcome>(i);
  return std::nullopt;
}

void append_line(const Line& line, std::string& out) {
  std::visit([&](const auto& record) { append(record, out); }, line);
}

}  // namespace pliant::record
