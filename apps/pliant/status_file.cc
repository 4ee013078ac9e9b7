#include "apps/pliant/status_file.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/pliant/job_dir.h"

namespace pliant::cli {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

double number_from(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

json to_json(const wire::Progress& progress) {
  return {{"step", progress.step},         {"steps", progress.steps},
          {"view", progress.view},         {"workers", progress.workers},
          {"epoch", progress.epoch},       {"epochs", progress.epochs},
          {"samples", progress.samples},   {"samples_per_second", number(progress.samples_per_second)},
          {"loss", number(progress.loss)}, {"text", progress.text}};
}

json to_json(const scale::BillLine& line) {
  json all = {{"class", line.kind}, {"money", line.money}};
  for (std::size_t phase = 0; phase < line.seconds.size(); ++phase)
    all[scale::kPhaseNames[phase]] = line.seconds[phase];
  return all;
}

scale::BillLine line_from(const json& from) {
  scale::BillLine line;
  line.kind = from.at("class");
  line.money = from.at("money");
  for (std::size_t phase = 0; phase < line.seconds.size(); ++phase)
    line.seconds[phase] = from.at(scale::kPhaseNames[phase]);
  return line;
}

wire::Progress progress_from(const json& from) {
  wire::Progress progress;
  progress.step = from.at("step");
  progress.steps = from.at("steps");
  progress.view = from.at("view");
  progress.workers = from.at("workers");
  progress.epoch = from.at("epoch");
  progress.epochs = from.at("epochs");
  progress.samples = from.at("samples");
  progress.samples_per_second = number_from(from.at("samples_per_second"));
  progress.loss = number_from(from.at("loss"));
  progress.text = from.at("text");
  return progress;
}

}  // namespace

std::string status_text(const Snapshot& now) {
  json all = {{"phase", now.phase},
              {"workers", now.workers},
              {"alive", now.alive},
              {"elapsed", seconds(now.elapsed)},
              {"at", now.at},
              {"seconds_left", now.seconds_left ? number(*now.seconds_left) : json(nullptr)},
              {"progress", now.progress ? to_json(*now.progress) : json(nullptr)},
              {"ledger", json::array()}};
  for (const auto& line : now.bill) all["ledger"].push_back(to_json(line));
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<Snapshot> read_status(const std::string& job_dir) {
  auto text = read_job_file(job_dir, kStatusFile);
  if (!text) return std::nullopt;
  try {
    auto all = json::parse(*text);
    Snapshot seen;
    seen.phase = all.at("phase");
    seen.workers = all.at("workers");
    seen.alive = all.at("alive");
    seen.elapsed = std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(all.at("elapsed").get<double>()));
    seen.at = all.at("at");
    if (!all.at("seconds_left").is_null()) seen.seconds_left = all.at("seconds_left").get<double>();
    if (!all.at("progress").is_null()) seen.progress = progress_from(all.at("progress"));
    for (const auto& line : all.at("ledger")) seen.bill.push_back(line_from(line));
    return seen;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace pliant::cli
