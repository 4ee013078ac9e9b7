#include "apps/pliant/resize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "apps/pliant/ask.h"
#include "apps/pliant/jobs.h"
#include "base/clock.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToComeBack = 15s;  // usually a fraction of a second, but machines may be busy

int resize(const std::string& name, const wire::Message& wish) {
  auto found = choose_job(name);
  if (!found.ok()) {
    fmt::print(stderr, "pliant resize: {}\n", found.error().message);
    return 1;
  }
  const auto& job = found.value();
  auto answer = ask_coordinator(job, wish, kTimeToComeBack);
  if (!answer.ok()) {
    fmt::print(stderr, "pliant resize: job '{}' has no coordinator ('pliant run --attach {}' starts one): {}\n",
               job.record.name, job.record.name, answer.error().message);
    return 1;
  }
  auto text = printable(answer.value().text);
  if (answer.value().ok) {
    fmt::print("{}\n", text);
    return 0;
  }
  fmt::print(stderr, "pliant resize: {}\n", text);
  return 1;
}

}  // namespace

void add_resize(CLI::App& app, Action& action) {
  struct Flags {
    std::string job;
    std::uint32_t workers = 0;
    std::optional<std::uint64_t> replace;
  };
  auto* command = app.add_subcommand("resize", "Change how many workers a job has, or which");
  command->footer(
      "Takes effect between two steps. Workers that are too many wait for a while (--warm of 'pliant run'), and are "
      "taken\n"
      "back first when there shall be more again. A worker that is to be replaced trains on until another one is "
      "ready.\n\n"
      "Examples:\n  pliant resize night 8\n  pliant resize night --replace 3");
  auto flags = std::make_shared<Flags>();
  command->add_option("JOB", flags->job, "Name of the job")->required();
  auto* workers = command->add_option("N", flags->workers, "So many workers");
  auto* replace =
      command->add_option("--replace", flags->replace, "Another worker in place of this one")->option_text("WORKER");
  workers->excludes(replace);
  command->callback([flags, workers, &action] {
    if (workers->count() == 0 && !flags->replace) throw CLI::RequiredError("N or --replace");
    action = [flags] {
      if (flags->replace) return resize(flags->job, wire::Replace{*flags->replace});
      return resize(flags->job, wire::Resize{flags->workers});
    };
  });
}

}  // namespace pliant::cli
