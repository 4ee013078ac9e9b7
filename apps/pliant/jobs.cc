#include "apps/pliant/jobs.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/job_base.h"
#include "apps/pliant/status_file.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/ticket.h"

namespace pliant::cli {
namespace {

using nlohmann::json;

double seconds_since(double then) {
  auto now = unix_seconds();
  return std::max(0.0, now - then);
}

double age_of(const Job& job) { return seconds_since(job.record.started_at); }

std::string command_of(const Job& job) {
  std::string line;
  for (const auto& word : job.record.argv) line += (line.empty() ? "" : " ") + printable(word);
  return line;
}

std::string state_of(const Job& job, const std::optional<Snapshot>& seen) {
  if (!job.agent_alive) return "orphaned";
  return seen ? seen->phase : "starting";
}

/// What the coordinator knows, or what the job began with.
membership::Memory memory_of(const Job& job) {
  if (auto note = read_note(job.dir)) return note->memory;
  membership::Memory memory;
  memory.wanted = job.record.plan.wanted;
  return memory;
}

std::string text_of(const json& value) { return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n"; }

json workers_of(const Job& job, const membership::View& view) {
  json workers = json::array();
  for (const auto& worker : job.record.workers) {
    auto rank = view.rank_of(worker.id);
    workers.push_back({{"id", worker.id},
                       {"rank", rank < 0 ? json(nullptr) : json(rank)},
                       {"pid", worker.process.pid},
                       {"alive", alive(worker.process)},
                       {"out", worker.out},
                       {"err", worker.err}});
  }
  return workers;
}

json hosts_of(const Job& job) {
  json hosts = json::array();
  for (const auto& host : job.record.hosts)
    hosts.push_back({{"name", host.name}, {"pid", host.process.pid}, {"alive", alive(host.process)}});
  return hosts;
}

json to_json(const Job& job) {
  auto seen = read_status(job.dir);
  auto memory = memory_of(job);
  json members = json::array();
  for (const auto& member : memory.view.members) members.push_back(member.id);  // in rank order
  json all = seen ? json::parse(status_text(*seen)) : json::object();
  return {{"name", job.record.name},
          {"state", state_of(job, seen)},
          {"agent", {{"pid", job.record.agent.pid}, {"alive", job.agent_alive}}},
          {"coordinator", {{"pid", job.coordinator.pid}, {"alive", job.coordinator_alive}}},
          {"view", {{"term", memory.view.term}, {"epoch", memory.view.epoch}, {"members", members}}},
          {"wanted", memory.wanted},
          {"spare", memory.spare},
          {"workers", workers_of(job, memory.view)},
          {"hosts", hosts_of(job)},
          {"workers_alive", job.workers_alive},
          {"age", age_of(job)},
          {"program", job.record.program},
          {"argv", job.record.argv},
          {"dir", job.dir},
          {"progress", all.value("progress", json(nullptr))},
          {"progress_at", all.value("at", json(nullptr))},
          {"seconds_left", all.value("seconds_left", json(nullptr))}};
}

/// "4/4", and "+1" for one that waits.
std::string head_count(const Job& job) {
  auto memory = memory_of(job);
  bool formed = memory.view.size() > 0;
  auto text = fmt::format("{}/{}", formed ? memory.view.size() : job.workers_alive, memory.wanted);
  return formed && memory.spare ? fmt::format("{}+{}", text, memory.spare) : text;
}

int show_all(bool as_json) {
  auto [jobs, refused] = list_own_jobs().or_throw();
  for (const auto& [name, why] : refused) fmt::print(stderr, "pliant ps: not a job of yours: {}\n", why.message);
  if (as_json) {
    json all = json::array();
    for (const auto& job : jobs) all.push_back(to_json(job));
    fmt::print("{}", text_of(all));
    return 0;
  }
  if (jobs.empty()) {
    fmt::print("no jobs are running\n");
    return 0;
  }
  std::size_t wide = 4;
  for (const auto& job : jobs) wide = std::max(wide, job.record.name.size());
  fmt::print("{:<{}}  {:>7}  {:>8}  {:>10}  {}\n", "NAME", wide, "WORKERS", "AGE", "STEP", "PROGRAM");
  for (const auto& job : jobs) {
    auto seen = read_status(job.dir);
    auto step = seen && seen->progress ? std::to_string(seen->progress->step) : "-";
    fmt::print("{:<{}}  {:>7}  {:>8}  {:>10}  {}{}\n", job.record.name, wide, head_count(job), format_span(age_of(job)),
               step, command_of(job), job.agent_alive ? "" : "  (its agent is gone)");
  }
  return 0;
}

void print_progress(const wire::Progress& seen) {
  auto total = [](std::uint64_t most) { return most ? fmt::format(" of {}", most) : std::string(); };
  fmt::print("step       {}{}\n", seen.step, total(seen.steps));
  fmt::print("epoch      {}{}\n", epoch_for_people(seen), total(seen.epochs));
  fmt::print("samples    {}, {} per second\n", seen.samples, format_rate(seen.samples_per_second));
  if (!std::isnan(seen.loss)) fmt::print("loss       {}\n", format_loss(seen.loss));
  if (!seen.text.empty()) fmt::print("also       {}\n", printable(seen.text));
}

void print_hosts(const Job& job, const membership::View& view) {
  fmt::print("ticket     {} ('pliant run --join' on another machine)\n", ticket_file(job.dir));
  fmt::print("hosts      {}\n", job.record.hosts.size());
  for (const auto& host : job.record.hosts) {
    std::string members;
    for (const auto& member : view.members)
      if (member.host == host.name) members += fmt::format(" {}", member.id);
    fmt::print("  host {:<12} {}{}\n", host.name, alive(host.process) ? "is there" : "is gone",
               members.empty() ? "" : ", workers" + members);
  }
}

void print_processes(const Job& job) {
  auto memory = memory_of(job);
  auto hint =
      fmt::format("gone; 'pliant run --attach {}' takes its place, 'pliant stop' ends the job", job.record.name);
  fmt::print("agent      {}\n", job.agent_alive ? fmt::format("process {}", job.record.agent.pid) : hint);
  fmt::print("coordinator {}\n",
             job.coordinator_alive ? fmt::format("process {}", job.coordinator.pid) : std::string("gone"));
  fmt::print("view       {} member{} (epoch {}), {} wanted, {} spare\n", memory.view.size(),
             memory.view.size() == 1 ? "" : "s", memory.view.epoch, memory.wanted, memory.spare);
  fmt::print("output     {}\n", job.record.output_dir);
  if (job.record.plan.spread() && !job.record.is_part()) return print_hosts(job, memory.view);
  fmt::print("workers    {} of {} run\n", job.workers_alive, job.record.workers.size());
  for (const auto& worker : job.record.workers) {
    auto rank = memory.view.rank_of(worker.id);
    auto place = rank < 0 ? std::string() : fmt::format(" as rank {}", rank);
    bool runs = alive(worker.process);
    fmt::print("  worker {:<4} process {:<8} {}{}\n", worker.id, worker.process.pid, runs ? "runs" : "has ended",
               runs ? place : "");
  }
}

int show_one(const std::string& name, bool as_json) {
  auto found = choose_job(name);
  if (!found.ok()) {
    fmt::print(stderr, "pliant status: {}\n", found.error().message);
    return 1;
  }
  const auto& job = found.value();
  if (as_json) {
    fmt::print("{}", text_of(to_json(job)));
    return 0;
  }
  auto seen = read_status(job.dir);
  fmt::print("job        {}\n", job.record.name);
  fmt::print("program    {}\n", command_of(job));
  fmt::print("state      {} for {}\n", state_of(job, seen), format_span(age_of(job)));
  // Only the agent writes it down; view and workers, below, are as they are now.
  if (seen && seen->progress && !job.agent_alive)
    fmt::print("progress   as of {} ago, when the agent was there\n", format_span(seconds_since(seen->at)));
  if (seen && seen->progress) print_progress(*seen->progress);
  if (seen && seen->seconds_left && job.agent_alive) fmt::print("time left  {}\n", format_span(*seen->seconds_left));
  print_processes(job);
  return 0;
}

}  // namespace

Result<JobList> list_own_jobs() {
  auto bases = job_bases();
  if (!bases.ok()) return bases.error();
  JobList all;
  for (const auto& base : bases.value()) {
    auto found = list_jobs(base);
    std::ranges::move(found.jobs, std::back_inserter(all.jobs));
    std::ranges::move(found.refused, std::back_inserter(all.refused));
  }
  std::ranges::stable_sort(all.jobs, {}, [](const Job& job) { return job.record.name; });
  return all;
}

Result<Job> choose_job(const std::string& name) {
  auto listed = list_own_jobs();
  if (!listed.ok()) return listed.error();
  auto& [jobs, refused] = listed.value();
  std::string names;
  for (auto& job : jobs) {
    if (job.record.name == name || (name.empty() && jobs.size() == 1)) return std::move(job);
    names += (names.empty() ? "" : ", ") + job.record.name;
  }
  for (const auto& [refused_name, why] : refused)
    if (refused_name == name || (name.empty() && names.empty()))
      return Error{why.code,
                   fmt::format("'{}' is not a job of yours: {} (it is left alone)", refused_name, why.message)};
  if (names.empty())
    return Error{Code::not_found, name.empty() ? "no jobs are running"
                                               : fmt::format("no job '{}': no jobs are running", printable(name))};
  if (name.empty()) return Error{Code::not_found, fmt::format("which job? These are running: {}", names)};
  return Error{Code::not_found, fmt::format("no job '{}'; these are running: {}", printable(name), names)};
}

void add_ps(CLI::App& app, Action& action) {
  auto* ps = app.add_subcommand("ps", "List your running jobs");
  ps->footer("Examples:\n  pliant ps\n  pliant ps --json | jq '.[].name'");
  auto as_json = std::make_shared<bool>(false);
  ps->add_flag("--json", *as_json, "As JSON, with all that 'pliant status' knows");
  ps->callback([as_json, &action] { action = [as_json] { return show_all(*as_json); }; });
}

void add_status(CLI::App& app, Action& action) {
  struct Flags {
    std::string job;
    bool json = false;
  };
  auto* status = app.add_subcommand("status", "Show what a job is doing");
  status->footer("Examples:\n  pliant status\n  pliant status night --json");
  auto flags = std::make_shared<Flags>();
  status->add_option("JOB", flags->job, "Name of the job (default: the only one that runs)");
  status->add_flag("--json", flags->json, "As JSON");
  status->callback([flags, &action] { action = [flags] { return show_one(flags->job, flags->json); }; });
}

}  // namespace pliant::cli
