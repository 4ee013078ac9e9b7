#include "apps/pliant/supply_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "apps/pliant/account.h"
#include "apps/pliant/command.h"
#include "apps/pliant/notice_watch.h"
#include "apps/pliant/trace_provider.h"

namespace pliant::cli {

void add_supply_flags(CLI::App& run, SupplyFlags& flags) {
  run.add_option(
         "--provider", flags.provider,
         "Where workers come from: 'slurm' or 'slurm:partition=spot,slots=2,…' submits a Slurm job for each node, "
         "as many as the job needs, and follows what Slurm takes away")
      ->option_text("NAME[:OPTIONS]")
      ->envname("PLIANT_PROVIDER")
      ->check(parses(slurm_of));
  run.add_option("--notice-url", flags.notice_url,
                 "A cloud's metadata service that says when this machine, and each of the hosts, is taken away: "
                 "http://169.254.169.254/latest/meta-data/spot/instance-action")
      ->option_text("URL")
      ->envname("PLIANT_NOTICE_URL")
      ->check(parses(parse_notice_url));
  run.add_option(
         "--trace", flags.trace,
         "Replay what could be had: a CSV of seconds,capacity,price. Workers come and go as it says, also as it "
         "is written while the job runs")
      ->option_text("FILE")
      ->envname("PLIANT_TRACE");
  run.add_option("--price", flags.price,
                 "Of a worker's hour, for the ledger at the end: 0.9, or by class: spot=0.3,on-demand=0.9")
      ->option_text("PRICE")
      ->envname("PLIANT_PRICE")
      ->check(parses(parse_prices));
  run.add_option("--class", flags.kind, "The price class of the workers on this machine: spot")
      ->option_text("NAME")
      ->envname("PLIANT_CLASS");
}

Result<SlurmOptions> slurm_of(const std::string& provider) {
  auto colon = std::min(provider.find(':'), provider.size());
  if (provider.substr(0, colon) != "slurm")
    return Error{Code::invalid, fmt::format("there is no provider '{}': only 'slurm'", provider.substr(0, colon))};
  return parse_slurm(provider.substr(std::min(colon + 1, provider.size())));
}

std::string contradiction_in(const SupplyFlags& flags, bool hosts, bool workers) {
  if (!flags.provider.empty() && hosts) return "hosts are named, or --provider gives them: choose one";
  if (!flags.provider.empty() && !workers) return "how many workers shall --provider give? -n says so";
  if (!flags.trace.empty() && hosts && flags.provider.empty())
    return "--trace replays onto this machine, or with --provider: not onto hosts that are named";
  return {};
}

void plan_supply(const SupplyFlags& flags, JobPlan& plan) {
  plan.supply.price = flags.price;
  plan.supply.provider = flags.provider;
  plan.supply.notice_url = flags.notice_url;
  plan.supply.kind = flags.kind;
  if (flags.trace.empty()) return;
  read_trace(flags.trace).or_throw();
  plan.supply.trace = std::filesystem::absolute(flags.trace).lexically_normal().string();
}

}  // namespace pliant::cli
