// A stranger on the network of a job: it has no secret, and tries all the same. See ../README.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/hosts/stranger/modes.h"

int main(int argc, char** argv) {
  using namespace pliant::stranger;
  CLI::App app("Hostile connections, for measuring");
  app.require_subcommand(1);

  AttackOptions options;
  auto* attacks = app.add_subcommand("attack", "Connect and lie");
  attacks->add_option("--to", options.targets, "address:port,…")->required()->delimiter(',');
  attacks->add_option("--job", options.job, "The job's name, which is no secret")->required();
  attacks->add_option("--overheard", options.overheard, "What `capture` has written");
  attacks->add_option("--connections", options.connections)->required();
  attacks->add_option("--rate", options.rate, "Connections per second")->required()->check(CLI::PositiveNumber);
  attacks->add_option("--wave", options.wave, "So many silent ones first, as fast as they can be made");
  attacks->add_option("--seed", options.seed);

  std::string address, file;
  auto* listens = app.add_subcommand("listen", "A plain listener, for comparison");
  listens->add_option("address", address)->required();
  auto* captures = app.add_subcommand("capture", "Overhear handshakes");
  captures->add_option("file", file)->required();

  CLI11_PARSE(app, argc, argv);
  try {
    if (*attacks) return attack(options);
    return *listens ? listen(address) : capture(file);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stranger: %s\n", error.what());
    return 1;
  }
}
