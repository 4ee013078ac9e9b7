#include "apps/pliant/doctor.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/pliant/probes.h"

namespace pliant::cli {
namespace {

using nlohmann::json;

void print_json(const std::vector<Finding>& findings) {
  json all = json::array();
  for (const auto& finding : findings)
    all.push_back({{"name", finding.name},
                   {"level", std::string(name_of(finding.level))},
                   {"detail", finding.detail},
                   {"advice", finding.advice}});
  fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
}

int examine(bool as_json) {
  auto findings = probe_all();
  auto problems = std::count_if(findings.begin(), findings.end(),
                                [](const Finding& finding) { return finding.level == Finding::Level::problem; });
  if (as_json) {
    print_json(findings);
    return problems ? 1 : 0;
  }
  for (const auto& finding : findings) {
    fmt::print("{:<8} {:<14} {}\n", name_of(finding.level), finding.name, finding.detail);
    if (!finding.advice.empty()) fmt::print("{:<8} {:<14} -> {}\n", "", "", finding.advice);
  }
  if (problems) fmt::print("{} problem{} to solve before jobs can run here\n", problems, problems == 1 ? "" : "s");
  return problems ? 1 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto* doctor = app.add_subcommand("doctor", "Check whether this machine can run jobs");
  doctor->footer(
      "Exit status 1 if there is a problem; warnings do not count.\n\nExamples:\n  pliant doctor\n"
      "  pliant doctor --json");
  auto as_json = std::make_shared<bool>(false);
  doctor->add_flag("--json", *as_json, "As JSON");
  doctor->callback([as_json, &action] { action = [as_json] { return examine(*as_json); }; });
}

}  // namespace pliant::cli
