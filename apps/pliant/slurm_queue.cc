#include "apps/pliant/slurm_queue.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <sstream>
#include <string_view>

#include "agent/ending.h"
#include "apps/pliant/ticket.h"
#include "wire/messages.h"

namespace pliant::cli {
namespace {

constexpr std::size_t kLongestNode = 48;  // of a name that has a limit

template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  auto end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, number).ptr != end) return std::nullopt;
  return number;
}

Error strange(const std::string& program, const std::string& line) {
  return {Code::protocol, fmt::format("{} answers nonsense: '{}'", program, line.substr(0, 100))};
}

/// For sh.
std::string quoted(const std::string& text) {
  std::string all = "'";
  for (char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

std::optional<SlurmState> state_from(const std::string& word) {
  static const std::map<std::string, SlurmState> kStates = {
      {"PENDING", SlurmState::waiting},       {"CONFIGURING", SlurmState::waiting},
      {"REQUEUED", SlurmState::waiting},      {"REQUEUE_FED", SlurmState::waiting},
      {"REQUEUE_HOLD", SlurmState::waiting},  {"SPECIAL_EXIT", SlurmState::waiting},
      {"RESV_DEL_HOLD", SlurmState::waiting}, {"RUNNING", SlurmState::running},
      {"RESIZING", SlurmState::running},      {"SIGNALING", SlurmState::running},
      {"SUSPENDED", SlurmState::running},     {"STOPPED", SlurmState::running},
      {"COMPLETING", SlurmState::leaving},    {"STAGE_OUT", SlurmState::leaving},
      {"COMPLETED", SlurmState::over},        {"FAILED", SlurmState::over},
      {"CANCELLED", SlurmState::over},        {"TIMEOUT", SlurmState::over},
      {"NODE_FAIL", SlurmState::over},        {"PREEMPTED", SlurmState::over},
      {"BOOT_FAIL", SlurmState::over},        {"DEADLINE", SlurmState::over},
      {"OUT_OF_MEMORY", SlurmState::over},    {"REVOKED", SlurmState::over},
      {"LAUNCH_FAILED", SlurmState::over},    {"RECONFIG_FAIL", SlurmState::over},
  };
  auto found = kStates.find(word);
  return found == kStates.end() ? std::nullopt : std::optional(found->second);
}

std::optional<SlurmEntry> entry_from(const std::string& line) {
  std::istringstream fields(line);
  std::string id, restarts, ends, preempted, status;
  SlurmEntry entry;
  fields >> id >> entry.word >> restarts >> ends >> preempted >> status >> entry.node;
  auto state = state_from(entry.word);
  auto number = number_from<std::uint64_t>(id);
  auto times = number_from<std::uint32_t>(restarts);
  auto outcome = number_from<int>(status);
  if (!state || !number || *number == 0 || !times || !outcome) return std::nullopt;
  entry.id = *number;
  entry.state = *state;
  entry.restarts = *times;
  entry.ends = number_from<std::int64_t>(ends);  // or "N/A", "NONE"
  entry.preempted = number_from<std::int64_t>(preempted);
  entry.status = *outcome;
  return entry;
}

/// Into one of the options.
Status take(SlurmOptions& options, const std::string& name, const std::string& value) {
  const std::map<std::string, std::string*> texts = {{"partition", &options.partition},
                                                     {"account", &options.account},
                                                     {"qos", &options.qos},
                                                     {"time", &options.time_limit},
                                                     {"constraint", &options.constraint}};
  const std::map<std::string, std::uint32_t*> numbers = {{"slots", &options.slots}, {"cores", &options.cores}};
  auto odd = [](unsigned char c) { return std::isspace(c) || std::iscntrl(c); };
  if (value.empty() || std::ranges::any_of(value, odd))
    return Error{Code::invalid, fmt::format("'{}={}' has no sensible value", name, value)};
  if (auto text = texts.find(name); text != texts.end()) {
    *text->second = value;
    return {};
  }
  if (auto number = numbers.find(name); number != numbers.end()) {
    auto read = number_from<std::uint32_t>(value);
    if (!read || *read < 1 || *read > wire::kMaxMembers)
      return Error{Code::invalid, fmt::format("'{}' is not a number of {}", value, name)};
    *number->second = *read;
    return {};
  }
  if (name == "extra") {
    options.extra.push_back(value);
    return {};
  }
  return Error{Code::invalid, fmt::format("Slurm has no '{}' here: there are partition, slots, cores, time, account, "
                                          "qos, constraint and extra",
                                          name)};
}

}  // namespace

Result<SlurmOptions> parse_slurm(const std::string& text) {
  SlurmOptions options;
  std::istringstream list(text);
  for (std::string each; std::getline(list, each, ',');) {
    auto cut = each.find('=');
    if (cut == std::string::npos)
      return Error{Code::invalid, fmt::format("'{}' should be NAME=VALUE, as in partition=spot,slots=2", each)};
    PLIANT_TRY(take(options, each.substr(0, cut), each.substr(cut + 1)));
  }
  return options;
}

std::string slurm_output(const std::string& dir, std::uint64_t id) { return fmt::format("{}/host-{}", dir, id); }

std::string slurm_host(const std::string& node, std::uint64_t id) {
  return fmt::format("{}.{}", node.substr(0, kLongestNode), id);
}

std::string slurm_script(const SlurmOptions& options, const SlurmPlace& place) {
  return fmt::format(
      R"(#!/bin/sh
dir={dir}
ticket={ticket}
if ! [ -r "$ticket" ]; then exit {missing}; fi
exec >>"$dir/host-$SLURM_JOB_ID.out" 2>>"$dir/host-$SLURM_JOB_ID.err"
if ! [ -d "${{XDG_RUNTIME_DIR:-}}" ]; then unset XDG_RUNTIME_DIR; fi
srun --nodes=1 --ntasks=1 --cpus-per-task={cores} --export=ALL --kill-on-bad-exit=0 \
  {pliant} run --join=- --host="$(printf %.{longest}s "$SLURMD_NODENAME").$SLURM_JOB_ID" --slots={slots}{kind} <"$ticket"
)",
      fmt::arg("dir", quoted(place.dir)), fmt::arg("ticket", quoted(ticket_file(place.dir))),
      fmt::arg("missing", kNoTicket), fmt::arg("cores", options.slots * options.cores),
      fmt::arg("pliant", quoted(place.pliant)), fmt::arg("longest", kLongestNode), fmt::arg("slots", options.slots),
      fmt::arg("kind", options.partition.empty() ? "" : " --class=" + quoted(options.partition)));
}

std::vector<std::string> sbatch_words(const SlurmOptions& options, const SlurmPlace& place, const std::string& name) {
  std::vector<std::string> words = {"sbatch",
                                    "--parsable",
                                    "--job-name=" + name,
                                    "--nodes=1",
                                    "--ntasks=1",
                                    fmt::format("--cpus-per-task={}", options.slots * options.cores),
                                    "--requeue",
                                    "--output=/dev/null",  // the script knows better: a wrong path here is a failed job
                                    "--error=/dev/null"};
  // Before a time limit ends the job; to its steps, as when it is preempted.
  words.push_back(
      fmt::format("--signal=TERM@{}", std::clamp<std::int64_t>(place.notice / std::chrono::seconds(1), 1, 65535)));
  const std::array<std::pair<const char*, const std::string&>, 5> wishes = {{{"partition", options.partition},
                                                                             {"account", options.account},
                                                                             {"qos", options.qos},
                                                                             {"time", options.time_limit},
                                                                             {"constraint", options.constraint}}};
  for (const auto& [wish, value] : wishes)
    if (!value.empty()) words.push_back(fmt::format("--{}={}", wish, value));
  words.insert(words.end(), options.extra.begin(), options.extra.end());
  return words;
}

std::vector<std::string> squeue_words(const std::string& name) {
  return {"squeue",
          "--noheader",
          fmt::format("--user={}", getuid()),
          "--name=" + name,
          "--states=all",
          "--Format=jobid:20,state:20,restartcnt:12,endtime:24,preempttime:24,exit_code:12,nodelist:300"};
}

std::vector<std::string> sinfo_words(const SlurmOptions& options) {
  std::vector<std::string> words = {"sinfo", "--noheader", "--states=idle", "--format=%P %D"};
  if (!options.partition.empty()) words.push_back("--partition=" + options.partition);
  return words;
}

std::vector<std::string> scancel_words(const std::string& name) {
  return {"scancel", fmt::format("--user={}", getuid()), "--name=" + name};
}

std::vector<std::string> scancel_words(const std::vector<std::uint64_t>& ids, bool gently) {
  std::vector<std::string> words = {"scancel"};
  if (gently) words.push_back("--signal=TERM");
  for (auto id : ids) words.push_back(std::to_string(id));
  return words;
}

std::vector<std::string> slurm_environment(std::vector<std::string> inherited) {
  std::erase_if(inherited, [](const std::string& entry) {
    if (entry.starts_with("SLURM_CONF=")) return false;
    return entry.starts_with("SLURM_") || entry.starts_with("SLURMD_") || entry.starts_with("SQUEUE_") ||
           entry.starts_with("SINFO_") || entry.starts_with("SCANCEL_");
  });
  return inherited;
}

bool SlurmEntry::taken() const {
  return preempted || WIFSIGNALED(status) || word == "CANCELLED" || word == "TIMEOUT" || word == "PREEMPTED" ||
         word == "NODE_FAIL";
}

double SlurmEntry::grace() const {
  if (state != SlurmState::running || !preempted || !ends || *ends < *preempted) return 0;
  return static_cast<double>(*ends - *preempted);
}

std::string SlurmEntry::words() const {
  agent::Ending ending;
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ending.code = WEXITSTATUS(status);
  return status == 0 ? word : word + ", " + ending.words();
}

Result<std::vector<SlurmEntry>> parse_queue(const std::string& text) {
  std::vector<SlurmEntry> entries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto entry = entry_from(line);
    if (!entry) return strange("squeue", line);
    entries.push_back(std::move(*entry));
  }
  return entries;
}

Result<std::uint64_t> parse_submitted(const std::string& text) {
  auto line = text.substr(0, text.find('\n'));
  auto id = number_from<std::uint64_t>(line.substr(0, line.find(';')));
  if (!id || *id == 0) return strange("sbatch", line);
  return *id;
}

Result<std::uint32_t> parse_idle(const std::string& text, bool of_default) {
  std::uint32_t nodes = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string partition, count;
    if (!(fields >> partition)) continue;
    fields >> count;
    auto number = number_from<std::uint32_t>(count);
    if (!number) return strange("sinfo", line);
    if (!of_default || partition.ends_with('*')) nodes += *number;
  }
  return nodes;
}

}  // namespace pliant::cli
