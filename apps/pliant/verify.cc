#include "apps/pliant/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "record/verify.h"

namespace pliant::cli {
namespace {

using nlohmann::json;

constexpr int kUnusable = 2;

void print_json(const record::Verification& seen) {
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
      {"ok", seen.ok},           {"steps", seen.steps},   {"epochs", seen.epochs},     {"samples", seen.samples},
      {"workers", seen.workers}, {"views", seen.views},   {"lineages", seen.lineages}, {"torn_lines", seen.torn_lines},
      {"changes", changes},      {"faults", seen.faults}, {"notes", seen.notes},       {"partial", seen.partial}};
  all["outcome"] = seen.outcome ? json(record::name_of(*seen.outcome)) : json(nullptr);
  fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
}

struct VerifyFlags {
  std::string dir;
  bool json = false;
  bool changes = false;
  bool partial = false;
};

int verify(const VerifyFlags& flags) {
  auto seen = record::verify_records(flags.dir, {.partial = flags.partial});
  if (!seen.ok()) {
    fmt::print(stderr, "pliant verify: {}\n", printable(seen.error().message));
    return kUnusable;
  }
  if (flags.json)
    print_json(seen.value());
  else
    fmt::print("{}{}", flags.changes ? seen.value().changes_text() : "", seen.value().text());
  return seen.value().ok ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("verify", "Prove from its records that a job went right");
  command->footer(
      "Reads every *.jsonl in DIR and checks that no step is missing, that all workers recorded\n"
      "the same, that state and samples go on from step to step, that each sample was used once\n"
      "per epoch, and that the job said how it ended. Exit status 1 if there is a fault, 2 if\n"
      "there is nothing to check.\n\n"
      "Examples:\n  pliant verify records --changes\n  pliant verify records --json | jq '.faults[]'");
  auto flags = std::make_shared<VerifyFlags>();
  command->add_option("DIR", flags->dir, "Folder with the job's records")->required();
  command->add_flag("--json", flags->json, "As JSON");
  command->add_flag("--changes", flags->changes, "Also show each change of workers and what it cost");
  command->add_flag("--partial", flags->partial, "The job still runs or was cut off: do not ask for its end");
  command->callback([flags, &action] { action = [flags] { return verify(*flags); }; });
}

}  // namespace pliant::cli
