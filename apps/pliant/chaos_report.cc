#include "apps/pliant/chaos_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/pliant/command.h"

namespace pliant::cli::chaos {
namespace {

using nlohmann::json;

struct Row {
  int done = 0, skipped = 0;
  std::vector<double> gaps;
};

Row row_of(const Report& report, Kind kind) {
  Row row;
  for (const auto& deed : report.deeds) {
    if (deed.kind != kind) continue;
    ++(deed.done ? row.done : row.skipped);
    if (deed.gap_ms) row.gaps.push_back(*deed.gap_ms);
  }
  return row;
}

Row whole_of(const Report& report) {
  Row all;
  for (const auto& info : all_kinds()) {
    auto row = row_of(report, info.kind);
    all.done += row.done;
    all.skipped += row.skipped;
    all.gaps.insert(all.gaps.end(), row.gaps.begin(), row.gaps.end());
  }
  return all;
}

std::string line_of(std::string_view name, const Row& row) {
  auto gap = [&](double part) {
    return row.gaps.empty() ? std::string("-") : fmt::format("{:.0f}", quantile(row.gaps, part));
  };
  return fmt::format("{:<17} {:>5} {:>8} {:>8} {:>8} {:>8}\n", name, row.done, row.skipped, gap(0.5), gap(0.99),
                     gap(1));
}

json gaps_json(const Row& row) {
  json all = {{"done", row.done}, {"skipped", row.skipped}};
  for (auto [name, part] : {std::pair("p50_ms", 0.5), {"p99_ms", 0.99}, {"worst_ms", 1.0}})
    all[name] = row.gaps.empty() ? json(nullptr) : json(quantile(row.gaps, part));
  return all;
}

std::string how_it_is(const Report& report) {
  auto of = report.steps_wanted ? fmt::format(" of {}", report.steps_wanted) : std::string();
  auto where = fmt::format("step {}{}", report.step, of);
  if (report.stuck) return fmt::format("job {} makes no steps any more: {}\n", report.job, where);
  if (!report.ended) return fmt::format("job {} goes on: {}\n", report.job, where);
  auto how = report.ending.empty() ? "its exit status is known to the 'pliant run' that began it" : report.ending;
  return fmt::format("job {} has ended: last seen at {}; {}\n", report.job, where, how);
}

std::string what_is_proved(const Report& report) {
  if (report.records.empty()) return "no records: nothing to verify ('pliant run --record DIR' writes them)\n";
  if (!report.verification)
    return fmt::format("'pliant verify {}' proves the rest once the job has ended\n", report.records);
  const auto& seen = *report.verification;
  if (!seen.ok()) return fmt::format("verify: {}\n", printable(seen.error().message));
  return fmt::format("verify: {}", seen.value().text());
}

/// What agents and coordinators write down about a worker, or about the job.
struct WorkerEvent {
  double t = 0;
  std::uint64_t worker = 0;
  std::string what, text;
};

void read_events(const std::filesystem::path& path, std::vector<WorkerEvent>& events) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    auto event = json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    auto t = event.value("t", json()), worker = event.value("worker", json(0U));
    auto what = event.value("event", json()), text = event.value("text", json());
    if (!t.is_number() || !worker.is_number_unsigned() || !what.is_string() || !text.is_string()) continue;
    events.push_back({t, worker, what, text});
  }
}

}  // namespace

std::optional<LastWorker> last_worker(const std::string& records) {
  std::vector<WorkerEvent> events;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(records, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    auto name = entry->path().filename().string();
    if ((name.starts_with("agent") || name.starts_with("coordinator")) && name.ends_with(".jsonl"))
      read_events(entry->path(), events);
  }
  std::ranges::stable_sort(events, {}, &WorkerEvent::t);
  std::optional<LastWorker> last;
  std::set<std::uint64_t> parted;  // said goodbye: that their connection is gone is no news
  for (const auto& event : events) {
    if (event.what == "over" && last) break;  // from here on workers end that had nothing to do any more
    bool known = event.text.starts_with("exit code") || event.text.starts_with("killed");
    if (event.what == "goodbye") {
      parted.insert(event.worker);
      last = {"said goodbye", true};
    } else if (event.what == "ended" && known) {
      last = {printable(event.text), event.text == "exit code 0"};
    } else if (event.what == "gone" && !parted.contains(event.worker)) {
      last = {"lost without a goodbye", false};
    }
  }
  return last;
}

bool Report::good() const {
  if (stuck || !ending_good) return false;
  return !verification || (verification->ok() && verification->value().ok);
}

void measure(Report& report) {
  std::vector<double> times;
  for (const auto& deed : report.deeds)
    if (deed.done) times.push_back(deed.t);
  auto gaps = gaps_after(report.steps, times);
  std::size_t next = 0;
  for (auto& deed : report.deeds)
    if (deed.done) deed.gap_ms = gaps[next++];
}

std::string report_text(const Report& report) {
  auto text = fmt::format("\n{:<17} {:>5} {:>8} {:>8} {:>8} {:>8}\n", "KIND", "DONE", "SKIPPED", "P50 ms", "P99 ms",
                          "WORST ms");
  for (const auto& info : all_kinds())
    if (auto row = row_of(report, info.kind); row.done + row.skipped > 0) text += line_of(info.name, row);
  text += line_of("all", whole_of(report));
  text += fmt::format("longest times between two steps after an event, {}; usually {:.1f} ms; seed {}\n",
                      report.from_records ? "without evaluations" : "as coarse as the job's reports of progress",
                      usual_step(report.steps), report.seed);
  return text + how_it_is(report) + what_is_proved(report);
}

std::string report_json(const Report& report) {
  json deeds = json::array();
  for (const auto& deed : report.deeds)
    deeds.push_back({{"number", deed.number},
                     {"kind", name_of(deed.kind)},
                     {"t", deed.t},
                     {"done", deed.done},
                     {"what", deed.words},
                     {"step", deed.step},
                     {"gap_ms", deed.gap_ms ? json(*deed.gap_ms) : json(nullptr)}});
  json kinds = json::object();
  for (const auto& info : all_kinds())
    if (auto row = row_of(report, info.kind); row.done + row.skipped > 0)
      kinds[std::string(info.name)] = gaps_json(row);
  json verified = nullptr;
  if (report.verification && report.verification->ok())
    verified = {{"ok", report.verification->value().ok},
                {"steps", report.verification->value().steps},
                {"views", report.verification->value().views},
                {"workers", report.verification->value().workers},
                {"lineages", report.verification->value().lineages},
                {"faults", report.verification->value().faults}};
  else if (report.verification)
    verified = {{"ok", false}, {"faults", {report.verification->error().message}}};
  json all = {{"job", report.job},
              {"seed", report.seed},
              {"good", report.good()},
              {"interrupted", report.interrupted},
              {"ended", report.ended},
              {"stuck", report.stuck},
              {"ending", report.ending},
              {"ended_well", report.ending_good},
              {"step", report.step},
              {"steps", report.steps_wanted},
              {"usual_step_ms", usual_step(report.steps)},
              {"exact_gaps", report.from_records},
              {"kinds", kinds},
              {"all", gaps_json(whole_of(report))},
              {"events", deeds},
              {"verify", verified}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli::chaos
