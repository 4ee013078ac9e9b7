#include "apps/pliant/chaos.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "apps/pliant/chaos_freezer.h"
#include "apps/pliant/chaos_storm.h"
#include "apps/pliant/jobs.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace chaos;

constexpr int kRefused = 2;

struct Flags {
  std::string job;
  std::uint64_t events = 0;
  double rate = 0;
  std::string every, duration, pause = "2s", patience = "60s";
  std::string kinds = "default";
  std::optional<std::uint64_t> seed;
  std::uint32_t least = 0, most = 0;
  bool yes = false, wait = false;
  std::string json, record, log;
  std::vector<std::string> links, hosts;
  std::string cut, one_way, slow, heal, slow_rate = "10mbit";
  std::string store, store_restart;
};

/// "500ms", "1.5s", "2m" or "1h".
Result<Nanos> parse_time(const std::string& text) {
  auto wrong = Error{Code::invalid, fmt::format("'{}' is not a time like 500ms, 2s, 5m or 1h", printable(text))};
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    return wrong;
  }
  auto unit = text.substr(used);
  double scale = unit == "ms" ? 1e-3 : unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (scale == 0 || !std::isfinite(value) || value <= 0 || value * scale > 1e7) return wrong;
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(value * scale));
}

Nanos time_or(const std::string& text, Nanos otherwise) {
  return text.empty() ? otherwise : parse_time(text).or_throw();
}

/// What a kind lacks here, or nothing.
std::string lacking(Kind kind, const Flags& flags, const Job& job, const LinkCommands& links) {
  switch (info_of(kind).need) {
    case Need::nothing:
      return {};
    case Need::freezer: {
      auto usable = check_freezer();
      return usable.ok() ? "" : fmt::format("needs root and a cgroup v2 tree: {}", usable.error().message);
    }
    case Need::hosts:
      return job.record.plan.spread() ? "" : "needs a job on several hosts";
    case Need::commands:
      if (!links.serves(kind))
        return fmt::format("needs --link as root, or --{}-with, --heal-with and --host", name_of(kind));
      if (geteuid() != 0 && !links.commands.contains(kind)) return "needs root for --link";
      return {};
    case Need::store:
      if (flags.store.empty()) return "needs --store-pid";
      if (auto process = store_process(flags.store); !process.ok()) return process.error().message;
      return {};
  }
  return {};
}

LinkCommands link_commands(const Flags& flags) {
  LinkCommands links;
  for (const auto& text : flags.links) links.links.push_back(parse_link(text).or_throw());
  links.hosts = flags.hosts;
  links.heal = flags.heal;
  links.slow_rate = flags.slow_rate;
  for (auto [kind, command] :
       {std::pair(Kind::cut, flags.cut), {Kind::one_way, flags.one_way}, {Kind::slow, flags.slow}})
    if (!command.empty()) links.commands[kind] = command;
  for (const auto& command : {flags.cut, flags.one_way, flags.slow, flags.heal, flags.store_restart})
    if (command.find('\n') != std::string::npos) throw Failure(Code::invalid, "a command has one line");
  return links;
}

PlanOptions plan_options(const Flags& flags, const Job& job, std::uint32_t wanted) {
  PlanOptions plan;
  plan.seed = flags.seed.value_or(random_u64() >> 32);
  plan.kinds = parse_kinds(flags.kinds).or_throw();
  if (flags.rate > 0) plan.every = std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(1 / flags.rate));
  plan.every = time_or(flags.every, plan.every);
  plan.longest_pause = time_or(flags.pause, plan.longest_pause);
  const auto& allowed = job.record.plan;
  plan.least = flags.least ? flags.least : std::min(wanted, std::max(allowed.least, 2U));
  plan.most = flags.most ? flags.most : std::min(allowed.most, wanted + 2);
  if (plan.least > plan.most)
    throw Failure(Code::invalid, fmt::format("--min {} is more than --max {}", plan.least, plan.most));
  return plan;
}

/// True if the user lets us.
bool permitted(const Flags& flags, const Job& job, const PlanOptions& plan) {
  if (flags.yes) return true;
  if (!isatty(STDIN_FILENO)) {
    fmt::print(stderr, "pliant chaos: --yes is needed to hurt job '{}' without a terminal to ask on\n",
               job.record.name);
    return false;
  }
  std::string kinds;
  for (auto kind : plan.kinds) kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", name_of(kind));
  fmt::print("job '{}' will suffer: {}\nGo on? [y/N] ", job.record.name, kinds);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "yes";
}

int refuse(const std::string& why) {
  fmt::print(stderr, "pliant chaos: {}\n", why);
  return kRefused;
}

/// Why nothing must be done, or nothing.
std::string objection(const Flags& flags, const Job& job, const PlanOptions& plan, const LinkCommands& links) {
  if (auto why = objection_to(job); !why.empty()) return fmt::format("job '{}': {}", job.record.name, why);
  for (auto kind : plan.kinds)
    if (auto lacks = lacking(kind, flags, job, links); !lacks.empty())
      return fmt::format("'{}' {}", name_of(kind), lacks);
  if (!flags.store_restart.empty() && !std::filesystem::is_regular_file(flags.store))
    return "--store-restart needs a file with the store's process number as --store-pid";
  return {};
}

int report_on(const Flags& flags, const Report& report, bool replaced_agent, const std::string& log) {
  fmt::print("{}", report_text(report));
  if (replaced_agent && !report.ended) fmt::print("its agent was started by this command; its output is in {}\n", log);
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << report_json(report);
    if (!file.flush()) fmt::print(stderr, "pliant chaos: cannot write {}\n", flags.json);
  }
  return report.good() ? 0 : 1;
}

int run_chaos(const Flags& flags) {
  auto found = choose_job(flags.job);
  if (!found.ok()) return refuse(found.error().message);
  const auto& job = found.value();
  if (job.record.is_part())
    return refuse(fmt::format("'{}' is one host's part of job '{}'", job.record.name, job.record.job));
  Observer observer(job.base(), job.dir, flags.record.empty() ? records_of(job) : flags.record);
  observer.look();
  StormOptions options;
  options.plan = plan_options(flags, job, observer.wanted());
  auto links = link_commands(flags);
  if (auto why = objection(flags, job, options.plan, links); !why.empty()) return refuse(why);
  if (!permitted(flags, job, options.plan)) return kRefused;
  if (!flags.duration.empty()) options.duration = parse_time(flags.duration).or_throw();
  options.events = flags.events ? flags.events : flags.duration.empty() ? 20 : UINT64_MAX;
  options.wait = flags.wait;
  options.patience = time_or(flags.patience, options.patience);

  SteadyClock clock;
  auto log = flags.log.empty() ? fmt::format("chaos-{}.log", job.record.name) : flags.log;
  Storm* storm = nullptr;  // says what the executor does later; it is there before anything is done
  Executor executor(clock, observer, Guard::start().or_throw(), {log, links, flags.store, flags.store_restart},
                    [&](const std::string& line) { storm->say(line); });
  Storm whole(clock, options, observer, executor);
  storm = &whole;
  whole.say(fmt::format("job {}, seed {}", job.record.name, options.plan.seed));
  auto report = whole.run();
  return report_on(flags, report, executor.replaced_agent(), log);
}

constexpr char kMore[] = R"(Kinds:
{}
'default' are those with a star. One member that holds the job's state is always spared, except by 'everybody'. A
schedule follows from --seed; whom it hits, from who is there. Ctrl-C ends it: whatever is stopped or cut is continued.
Kills use up the job's --max-restarts. Exit status: 0 if the job goes on or has ended well and 'pliant verify' finds no
fault in its records, 1 if not, 2 if nothing was done.

Examples:
  pliant chaos night --events 50 --kinds kill,term,resize
  pliant chaos night --duration 10m --every 500ms --seed 7 --yes --wait --json report.json
  pliant chaos night --kinds default,everybody        a job with --checkpoint goes on
  pliant chaos night --kinds cut,slow --link a=switch/port0@1gbit --link b=switch/port1@1gbit
  pliant chaos night --kinds cut --host a --cut-with 'ssh {{host}} ...' --heal-with 'ssh {{host}} ...')";

std::string more() {
  std::string kinds;
  for (const auto& info : all_kinds())
    kinds += fmt::format("  {}{:<16} {}\n", info.by_default ? '*' : ' ', info.name, info.what);
  return fmt::format(kMore, kinds);
}

void add_schedule_flags(CLI::App& command, Flags& flags) {
  auto time = parses(parse_time);
  command.add_option("--events", flags.events, "So many events (default: 20, or as many as --duration takes)")
      ->option_text("N")
      ->check(CLI::PositiveNumber);
  auto* rate = command.add_option("--rate", flags.rate, "So many per second (default: 1)");
  rate->option_text("PER_SECOND")->check(CLI::Range(0.001, 1000.0));
  command.add_option("--every", flags.every, "Or one in such a time, on average")
      ->option_text("TIME")
      ->check(time)
      ->excludes(rate);
  command.add_option("--duration", flags.duration, "No more events after this time")->option_text("TIME")->check(time);
  command.add_option("--kinds", flags.kinds, "Which, separated by commas (default: default)")
      ->option_text("A,B")
      ->check(parses(parse_kinds));
  command.add_option("--seed", flags.seed, "Of the schedule (default: random, and shown)")->option_text("N");
  command.add_option("--min", flags.least, "Resizes go down to so many workers (default: 2)")
      ->option_text("N")
      ->check(CLI::Range(1, 512));
  command.add_option("--max", flags.most, "And up to so many (default: 2 more than there are)")
      ->option_text("N")
      ->check(CLI::Range(1, 512));
  command.add_option("--pause", flags.pause, "What is stopped is stopped for so long at most (default: 2s)")
      ->option_text("TIME")
      ->check(time);
  command.add_option("--patience", flags.patience, "A job without a step for so long is stuck (default: 60s)")
      ->option_text("TIME")
      ->check(time);
}

void add_link_flags(CLI::App& command, Flags& flags) {
  command.add_option("--link", flags.links, "The device that leads to a host, for ip and tc, as root; may be repeated")
      ->option_text("HOST=[NETNS/]DEVICE[@RATE]")
      ->allow_extra_args(false)
      ->check(parses(parse_link));
  command.add_option("--host", flags.hosts, "A host that the commands below may name; may be repeated")
      ->option_text("HOST")
      ->allow_extra_args(false);
  command.add_option("--cut-with", flags.cut, "How {host} is cut off")->option_text("COMMAND");
  command.add_option("--one-way-with", flags.one_way, "How nothing reaches {host} any more")->option_text("COMMAND");
  command.add_option("--slow-with", flags.slow, "How {host}'s link becomes slow")->option_text("COMMAND");
  command.add_option("--heal-with", flags.heal, "How all of that is undone")->option_text("COMMAND");
  command.add_option("--slow-rate", flags.slow_rate, "What 'slow' leaves of a --link (default: 10mbit)")
      ->option_text("RATE");
  command.add_option("--store-pid", flags.store, "The store's process, or a file that holds its number")
      ->option_text("PID|FILE");
  command.add_option("--store-restart", flags.store_restart, "Kill the store, then start it like this")
      ->option_text("COMMAND");
}

}  // namespace

void add_chaos(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("chaos", "Hurt a running job and see whether it goes on");
  command->footer(more());
  auto flags = std::make_shared<Flags>();
  command->add_option("JOB", flags->job, "Name of the job")->required();
  add_schedule_flags(*command, *flags);
  command->add_flag("--wait", flags->wait, "Wait for the job's end, then verify its records");
  command->add_flag("--yes", flags->yes, "Do not ask");
  command->add_option("--record", flags->record, "The job's records (default: where its --record is)")
      ->option_text("DIR");
  command->add_option("--json", flags->json, "Write the report there as well")->option_text("FILE");
  command->add_option("--log", flags->log, "The output of what is started, as agents (default: chaos-JOB.log)")
      ->option_text("FILE");
  add_link_flags(*command, *flags);
  command->callback([flags, &action] {
    action = [flags] {
      try {
        return run_chaos(*flags);
      } catch (const Failure& failure) {  // all that throws does so before anything is done
        return refuse(failure.what());
      }
    };
  });
}

}  // namespace pliant::cli
