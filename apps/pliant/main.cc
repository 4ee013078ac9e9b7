// The command line `pliant`.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "apps/pliant/bench.h"
#include "apps/pliant/chaos.h"
#include "apps/pliant/command.h"
#include "apps/pliant/coordinator_process.h"
#include "apps/pliant/doctor.h"
#include "apps/pliant/jobs.h"
#include "apps/pliant/plan.h"
#include "apps/pliant/resize.h"
#include "apps/pliant/run.h"
#include "apps/pliant/verify.h"

namespace {

using namespace pliant::cli;

constexpr char kExamples[] = R"(Examples:
  pliant run -n 4 ./train --epochs 10   four workers on this machine
  pliant ps                             what is running
  pliant status                         how far it is
  pliant resize train-3f 8              eight workers from now on
  pliant stop                           end it
  pliant doctor                         can this machine run jobs?

'pliant COMMAND --help' shows a command's flags.)";

/// With one of the standard descriptors closed, the next file opened would become the program's output.
void open_standard_descriptors() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

int run_main(const std::vector<std::string>& words) {
  auto line = cut_at_program(words);
  CLI::App app("Elastic, adaptive, data-parallel training", "pliant");
  style_help(app);
  app.footer(kExamples);
  app.set_version_flag("--version", fmt::format("pliant {}", version()));
  app.require_subcommand(0, 1);
  Action action;
  add_run(app, action, line.program);
  add_ps(app, action);
  add_status(app, action);
  add_resize(app, action);
  add_stop(app, action);
  add_verify(app, action);
  add_chaos(app, action);
  add_plan(app, action);
  add_coordinator(app, action);
  add_doctor(app, action);
  add_bench(app, action);

  if (auto missing = missing_value(app, line.flags); !missing.empty()) {
    fmt::print(stderr, "{}\n", missing);
    return kUsageError;
  }
  try {
    std::vector<std::string> backwards(line.flags.rbegin(), line.flags.rend());  // as the parser wants them
    app.parse(backwards);
  } catch (const CLI::Success& success) {  // --help and --version
    return app.exit(success);
  } catch (const CLI::Error& error) {
    fmt::print(stderr, "{}\n", explain(app, error));
    return kUsageError;
  }
  if (action) return action();
  fmt::print(stderr, "{}", app.help());
  return kUsageError;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    hide_values({argv + 1, argv + 1 + cut_at_program(words).flags.size()});
    return run_main(words);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "pliant: {}\n", failure.what());
    return 1;
  }
}
