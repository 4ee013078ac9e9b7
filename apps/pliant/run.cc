#include "apps/pliant/run.h"

#include <fmt/format.h>
#include <pliant/policy.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/pliant/job_dir.h"
#include "apps/pliant/join.h"
#include "apps/pliant/journal_flags.h"
#include "apps/pliant/process.h"
#include "base/system.h"
#include "wire/messages.h"

namespace pliant::cli {
namespace {

constexpr char kAbout[] = "Run PROGRAM as N workers, on this machine or on several, and watch them to their end";
constexpr char kMore[] =
    R"(Each worker finds PLIANT_JOB, PLIANT_WORKER (its number), PLIANT_WORKERS, PLIANT_COORDINATOR,
PLIANT_SEED and PLIANT_THREADS in its environment; OMP_NUM_THREADS and its like follow
PLIANT_THREADS unless you set them, and GLIBC_TUNABLES makes malloc keep what a step frees for the next
one unless you chose how malloc behaves. Flags come before PROGRAM; all that follows is the program's own.
A password or token for the workers goes by '-x NAME': other users can read what a command line says.

On several machines (-H, --hostfile, --host-discovery-script) an agent is started on each by --via; PROGRAM must be
there under the same path. 'pliant run --join TICKET' adds the machine it is typed on to a job; the job's ticket is in its
directory ('pliant status' says where).

A worker that dies after the job has begun is replaced, and the others go on. 'pliant resize' changes how
many there are. SIGTERM to a worker lets it leave after its step.

Exit status: 0 if the job was finished, or if no worker ever joined and all exit with 0; otherwise that of
the worker whose failure ended it (128 + N if signal N killed it); 127 if PROGRAM is not found, 126 if it
cannot be executed, 2 for wrong flags; 130 after Ctrl-C, 143 after SIGTERM. If this process is killed, the
job goes on: 'pliant run --attach JOB' takes it up again, 'pliant stop' ends it.

Examples:
  pliant run -n 4 ./train --epochs 10
  pliant run -n 2 --output rank0 --output-dir logs python3 train.py
  pliant run -n 8 --name night -x DATA=/data -x TOKEN -- ./train -v
  pliant run -n 8 --min 4 --max 16 ./train
  pliant run -H node1:4,node2:4 --via 'ssh {host}' ./train
  pliant run -H a:4,b:4 --via 'ssh {host}' --store etcds://etcd1:2379 --store-ca ca.pem --store-user me
             --store-password-file password ./train
  pliant run --host-discovery-script ./hosts.sh --via 'ssh {host}' --min 2 ./train
  pliant run --join ticket --slots 4
  pliant run -n 8 --min 2 --provider slurm:partition=spot,slots=2 --price 0.3 ./train
  pliant run -n 4 --trace spot.csv --policy autoscale:max=8 ./train
  pliant run -n 4 --record proof --checkpoint saved --every 5m ./train
  pliant run --attach night)";

const std::map<std::string, OutputMode> kOutputModes = {{"prefix", OutputMode::prefix},
                                                        {"raw", OutputMode::raw},
                                                        {"rank0", OutputMode::rank0},
                                                        {"quiet", OutputMode::quiet}};
const std::map<std::string, StatusMode> kStatusModes = {{"auto", StatusMode::automatic},
                                                        {"line", StatusMode::line},
                                                        {"plain", StatusMode::plain},
                                                        {"off", StatusMode::off}};

/// What the parser fills in; checked and turned into RunOptions once the user's choice is complete.
struct RunFlags {
  RunOptions options;
  std::string output;
  std::string status = "auto";
  double grace = 5;
  double warm = 10;
  JournalFlags journal;
  std::vector<std::string> policies;
};

/// Workers may run elsewhere: a shared object of a utility's is named in full.
void name_utility_in_full(std::string& description) {
  constexpr std::string_view kKey = "utility=";
  auto at = description.find(kKey);
  if (at == std::string::npos) return;
  at += kKey.size();
  auto size = std::min(description.find(',', at), description.size()) - at;
  auto path = description.substr(at, size);
  if (path.ends_with(".so")) description.replace(at, size, std::filesystem::absolute(path).lexically_normal().string());
}

/// KEY=VALUE for the workers. Mistakes are found before anything is started.
std::vector<std::string> policy_environment(const std::vector<std::string>& policies) {
  if (policies.empty()) return {};
  std::string list;
  for (auto description : policies) {
    auto colon = std::min(description.find(':'), description.size());
    auto name = description.substr(0, colon);
    if (name.find('/') != std::string::npos || name.ends_with(".so")) {
      if (!std::filesystem::exists(name))
        throw Failure(Code::not_found, fmt::format("--policy {}: no such file", name));
      description = std::filesystem::absolute(name).lexically_normal().string() + description.substr(colon);
    } else {
      name_utility_in_full(description);
      make_policy(description);
    }
    list += (list.empty() ? "" : "\n") + description;
  }
  return {"PLIANT_POLICY=" + list};
}

template <class Map>
CLI::Validator one_of(const Map& modes) {
  return CLI::Validator(
      [&modes](const std::string& value) {
        if (modes.contains(value)) return std::string();
        std::string names;
        for (const auto& [name, mode] : modes) names += (names.empty() ? "" : ", ") + name;
        return fmt::format("'{}' is none of {}", value, names);
      },
      "");
}

template <class T>
CLI::Validator in_range(T least, T most) {
  return CLI::Validator(
      [=](const std::string& value) {
        T number{};
        bool fits = CLI::detail::lexical_cast(value, number) && number >= least && number <= most;
        return fits ? std::string() : fmt::format("'{}' is not a number from {} to {}", value, least, most);
      },
      "");
}

/// NAME=VALUE; NAME alone has the value that it has here.
Result<std::string> assignment_from(const std::string& text) {
  auto name = text.substr(0, text.find('='));
  if (name.empty()) return Error{Code::invalid, fmt::format("'{}' is neither NAME nor NAME=VALUE", text)};
  if (name.size() < text.size()) return text;
  const char* value = std::getenv(name.c_str());
  if (!value) return Error{Code::invalid, fmt::format("{} is not set here: export it, or give NAME=VALUE", name)};
  return name + "=" + value;
}

void add_flags(CLI::App& run, RunFlags& flags) {
  auto& options = flags.options;
  run.add_option("-n,--workers", options.workers, "Number of workers; -np works too (default: the usable cores)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_WORKERS")
      ->check(in_range<int>(1, wire::kMaxMembers));
  run.add_option("--min", options.least,
                 "Begin as soon as N have joined, and refuse to shrink below (default: begin with all, shrink to 1)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_MIN")
      ->check(in_range<int>(1, wire::kMaxMembers));
  run.add_option("--max", options.most, "Refuse to grow beyond (default: 512)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_MAX")
      ->check(in_range<int>(1, wire::kMaxMembers));
  run.add_option("--max-restarts", options.restarts, "Replace so many workers that fail, then no more (default: 10)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_MAX_RESTARTS")
      ->check(in_range<int>(0, 1'000'000));
  run.add_option("--spare", options.spare,
                 "Keep so many more ready to take the place of one that fails or is slow (default: 0)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_SPARE")
      ->check(in_range<int>(0, wire::kMaxMembers));
  run.add_option("--warm", flags.warm, "How long workers that are not needed any more wait to be (default: 10)")
      ->option_text("SECONDS")
      ->envname("PLIANT_WARM")
      ->check(in_range<double>(0, 86400));
  run.add_option("--attach", options.attach, "Take up a job whose agent is gone, instead of starting one")
      ->option_text("JOB");
  run.add_option("--join", options.join,
                 "Start workers on this machine for a job that runs elsewhere; '-': ticket on stdin")
      ->option_text("TICKET");
  run.add_option("--host", options.here.name,
                 "What this machine is called in the job that it joins (default: its name)")
      ->option_text("NAME");
  run.add_option("--slots", options.here.slots, "How many workers it takes then (default: the usable cores)")
      ->option_text("N")
      ->type_name("N")
      ->check(in_range<int>(1, wire::kMaxMembers));
  run.add_option("--name", options.name, "Name of the job (default: the program's, with a random suffix)")
      ->option_text("NAME")
      ->envname("PLIANT_NAME")
      ->check([](const std::string& name) { return objection_to_name(name); });
  run.add_option("--output", flags.output,
                 "prefix: workers' lines after '[rank] '; raw: as they are; rank0: only worker 0's; quiet: none "
                 "(default: prefix)")
      ->option_text("MODE")
      ->envname("PLIANT_OUTPUT")
      ->check(one_of(kOutputModes));
  run.add_option("--output-dir", options.output_dir, "Keep the workers' output there, as rank-K.out and rank-K.err")
      ->option_text("DIR")
      ->envname("PLIANT_OUTPUT_DIR");
  run.add_option("--threads", options.threads, "Threads per worker (default: an equal share of the usable cores)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_THREADS")
      ->check(in_range<int>(1, 4096));
  run.add_option("--seed", options.seed, "Seed of all the job's random streams (default: 42)")
      ->option_text("N")
      ->type_name("N")
      ->envname("PLIANT_SEED");
  run.add_option("--status", flags.status,
                 "line: live on the terminal; plain: a line now and then; off; auto: what fits (default: auto)")
      ->option_text("MODE")
      ->envname("PLIANT_STATUS")
      ->check(one_of(kStatusModes));
  run.add_option("--grace", flags.grace, "Time between asking workers to end and killing them (default: 5)")
      ->option_text("SECONDS")
      ->envname("PLIANT_GRACE")
      ->check(in_range<double>(0, 86400));
  run.add_option("--policy", flags.policies,
                 "Ask it after every step what should change: a name, or a shared object; may be repeated. 'pliant run "
                 "--policy help' lists the names")
      ->option_text("NAME[:OPTIONS]")
      ->allow_extra_args(false);
  add_journal_flags(run, flags.journal);
  add_supply_flags(run, options.supply);
  add_hosts_flags(run, options.hosts);
  run.add_option("-x,--env", options.env,
                 "A variable for the workers, with the value that it has here unless another one is given; may be "
                 "repeated [$PLIANT_ENV, separated by ';']")
      ->option_text("NAME[=VALUE]")
      ->allow_extra_args(false)
      ->check(parses(assignment_from));
}

/// The variables of -x, or else of its twin, with their values.
void complete_variables(RunOptions& options) {
  auto twin = env("PLIANT_ENV");
  bool from_twin = twin && options.env.empty();
  if (from_twin) options.env = CLI::detail::split(*twin, ';');
  std::erase(options.env, "");
  for (auto& entry : options.env) {
    auto complete = assignment_from(entry);
    if (!complete.ok())
      throw Failure(Code::invalid, (from_twin ? "PLIANT_ENV: " : "--env: ") + complete.error().message);
    entry = complete.value();
  }
}

/// On several hosts there are as many workers as slots, unless the user says how many. One line on what is wrong.
std::string fit_to_hosts(RunOptions& options, bool chosen) {
  if (!options.attach.empty() || !options.join.empty()) return {};
  try {
    std::uint32_t slots = 0;
    options.places = chosen_hosts(options.hosts);
    for (const auto& host : options.places) slots += host.slots;
    if (slots == 0) return {};
    if (!chosen) options.workers = static_cast<int>(slots);
    options.follows_slots = !chosen && !options.hosts.discovery.empty();
    if (options.follows_slots) options.workers = std::clamp(options.workers, 1, options.most);
    if (options.workers > static_cast<int>(slots))
      return fmt::format("{} workers do not fit into {} slots", options.workers, slots);
    return {};
  } catch (const Failure& failure) {
    return failure.what();
  }
}

/// One line on what does not fit together, or nothing.
std::string contradiction_in(const RunOptions& options, const std::vector<std::string>& program, bool chosen) {
  if (!options.attach.empty()) return program.empty() ? "" : "--attach takes up a job that has its program already";
  if (!options.join.empty()) return program.empty() ? "" : "--join takes the program from the job";
  if (!options.here.name.empty() || options.here.slots) return "--host and --slots go with --join";
  if (program.empty()) return "which program? Name one after the flags";
  if (options.least > options.workers)
    return fmt::format("--min {} is more than --workers {}", options.least, options.workers);
  if (options.most < options.workers)
    return fmt::format("--max {} is less than --workers {}", options.most, options.workers);
  return contradiction_in(options.supply, !options.places.empty(), chosen);
}

}  // namespace

std::string_view name_of(OutputMode mode) {
  for (const auto& [name, value] : kOutputModes)
    if (value == mode) return name;
  return "prefix";
}

std::optional<OutputMode> output_mode(std::string_view name) {
  auto at = kOutputModes.find(std::string(name));
  if (at == kOutputModes.end()) return std::nullopt;
  return at->second;
}

CommandLine cut_at_program(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "run") return {words, {}};
  CommandLine line{{words[0]}, {}};
  std::size_t at = 1;
  // Every flag of run but --help takes a value: in the same word after '=' or the short letter, or in the next.
  for (; at < words.size() && words[at].size() > 1 && words[at][0] == '-' && words[at] != "--"; ++at) {
    const auto& word = words[at];
    bool is_long = word.starts_with("--");
    bool complete = word == "-h" || word == "--help" ||
                    (is_long ? word.find('=') != std::string::npos : word.size() > 2 && word != "-np");
    line.flags.push_back(word == "-np" ? "-n" : word);
    if (!complete && at + 1 < words.size()) line.flags.push_back(words[++at]);
  }
  if (at < words.size() && words[at] == "--") ++at;
  line.program.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  return line;
}

void hide_values(const std::vector<char*>& words) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    std::string_view word = words[at];
    char* assignment = nullptr;
    if ((word == "-x" || word == "--env") && at + 1 < words.size())
      assignment = words[++at];
    else if (word.starts_with("--env="))
      assignment = words[at] + std::strlen("--env=");
    else if (word.starts_with("-x"))
      assignment = words[at] + std::strlen("-x");
    char* value = assignment ? std::strchr(assignment, '=') : nullptr;
    if (value) std::fill(value + 1, value + std::strlen(value), '*');
  }
}

void add_run(CLI::App& app, Action& action, const std::vector<std::string>& program) {
  auto* run = app.add_subcommand("run", kAbout);
  run->footer(kMore);
  auto flags = std::make_shared<RunFlags>();
  flags->options.workers = usable_cores();
  add_flags(*run, *flags);
  run->add_option("PROGRAM")->option_text("[--] PROGRAM [ARGS...]")->group("");
  run->callback([run, flags, program, &action] {
    auto& options = flags->options;
    if (auto wrong = fit_to_hosts(options, run->count("--workers") > 0); !wrong.empty())
      throw CLI::ValidationError(wrong);
    bool chosen = run->count("--workers") > 0;
    if (auto wrong = contradiction_in(options, program, chosen); !wrong.empty()) throw CLI::ValidationError(wrong);
    bool output_chosen = !flags->output.empty();
    if (output_chosen) options.output = kOutputModes.at(flags->output);
    options.status = kStatusModes.at(flags->status);
    options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(flags->grace * 1000));
    options.warm = std::chrono::milliseconds(static_cast<std::int64_t>(flags->warm * 1000));
    options.command = program;
    action = [flags, output_chosen] {
      leave_no_core_dumps();
      complete_variables(flags->options);
      for (auto& entry : journal_environment(flags->journal)) flags->options.env.push_back(std::move(entry));
      for (auto& entry : policy_environment(flags->policies)) flags->options.env.push_back(std::move(entry));
      if (!flags->options.attach.empty()) return attach_to_job(flags->options, output_chosen);
      if (!flags->options.join.empty()) return join_job(flags->options);
      return run_job(flags->options);
    };
  });
}

}  // namespace pliant::cli
