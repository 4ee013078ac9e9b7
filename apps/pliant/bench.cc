#include "apps/pliant/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace pliant::cli {

void add_bench(CLI::App& app, Action& action) {
  auto* bench = app.add_subcommand("bench", "Measure this machine");
  bench->callback([&action] {
    action = [] {
      fmt::print(stderr, "pliant bench: not in this build\n");
      return 1;
    };
  });
}

}  // namespace pliant::cli
