#include "apps/pliant/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "session/record.h"

namespace pliant::cli {
namespace {

using nlohmann::json;

constexpr int kUnusable = 2;

void print_json(const session::Verification& seen) {
  json changes = json::array();
  for (const auto& change : seen.changes)
    changes.push_back({{"step", change.step},
                       {"view", change.view},
                       {"size", change.size},
                       {"came", change.came},
                       {"gone", change.gone},
                       {"gap_ms", change.gap_ms},
                       {"usual_ms", change.usual_ms}});
  json all = {
      {"ok", seen.ok},           {"steps", seen.steps},  {"epochs", seen.epochs},     {"samples", seen.samples},
      {"workers", seen.workers}, {"views", seen.views},  {"lineages", seen.lineages}, {"torn_lines", seen.torn_lines},
      {"changes", changes},      {"faults", seen.faults}};
  fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
}

int verify(const std::string& dir, bool as_json, bool changes) {
  auto seen = session::verify_records(dir);
  if (!seen.ok()) {
    fmt::print(stderr, "pliant verify: {}\n", printable(seen.error().message));
    return kUnusable;
  }
  if (as_json)
    print_json(seen.value());
  else
    fmt::print("{}{}", changes ? seen.value().changes_text() : "", seen.value().text());
  return seen.value().ok ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  struct Flags {
    std::string dir;
    bool json = false;
    bool changes = false;
  };
  auto* command = app.add_subcommand("verify", "Prove from its records that a job went right");
  command->footer(
      "Reads every *.jsonl in DIR and checks that no step is missing, that all workers recorded\n"
      "the same, and that each sample was used once per epoch. Exit status 1 if there is a fault,\n"
      "2 if there is nothing to check.\n\n"
      "Examples:\n  pliant verify records --changes\n  pliant verify records --json | jq '.faults[]'");
  auto flags = std::make_shared<Flags>();
  command->add_option("DIR", flags->dir, "Folder with the job's records")->required();
  command->add_flag("--json", flags->json, "As JSON");
  command->add_flag("--changes", flags->changes, "Also show each change of workers and what it cost");
  command->callback([flags, &action] { action = [flags] { return verify(flags->dir, flags->json, flags->changes); }; });
}

}  // namespace pliant::cli
