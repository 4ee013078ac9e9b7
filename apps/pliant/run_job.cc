// `pliant run` once its flags make sense: the job's record and directory, and who runs it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "apps/pliant/agent.h"
#include "apps/pliant/coordinator_server.h"
#include "apps/pliant/head.h"
#include "apps/pliant/job_base.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/jobs.h"
#include "apps/pliant/run.h"
#include "apps/pliant/worker_env.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

/// "train" from "./train.py", then a suffix: short enough to type.
std::string default_name(const std::string& program) {
  auto name = std::filesystem::path(program).stem().string();
  std::erase_if(name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_'; });
  if (name.empty() || name[0] == '-') name = "job" + name;
  return fmt::format("{}-{:04x}", name.substr(0, 40), random_u64() & 0xffff);
}

JobPlan plan_of(const RunOptions& options, const std::string& dir) {
  JobPlan plan;
  std::error_code ignored;
  plan.coordinator = coordinator_address(dir);
  plan.cwd = std::filesystem::current_path(ignored);
  plan.env = options.env;
  plan.output = name_of(options.output);
  plan.threads = options.threads;
  plan.seed = options.seed;
  plan.wanted = static_cast<std::uint32_t>(options.workers);
  plan.start = static_cast<std::uint32_t>(options.least ? options.least : options.workers);
  plan.least = static_cast<std::uint32_t>(std::max(options.least, 1));
  plan.most = static_cast<std::uint32_t>(options.most);
  plan.restarts = options.restarts;
  plan.spare = static_cast<std::uint32_t>(options.spare);
  plan.warm = options.warm;
  plan_supply(options.supply, plan);
  plan_hosts(options.hosts, options.places, plan);
  return plan;
}

JobRecord record_of(const RunOptions& options, const std::string& program, const std::string& base) {
  JobRecord record;
  record.name = options.name.empty() ? default_name(options.command[0]) : options.name;
  record.machine = this_machine();
  record.program = program;
  record.argv = options.command;
  record.agent = this_process();
  record.started_at = unix_seconds();
  record.grace = std::chrono::duration<double>(options.grace).count();
  record.output_dir = base + "/" + record.name;
  if (!options.output_dir.empty()) record.output_dir = std::filesystem::absolute(options.output_dir).lexically_normal();
  record.plan = plan_of(options, base + "/" + record.name);
  record.plan.store = store_of_its_own(record.plan.store);
  return record;
}

}  // namespace

int run_job(const RunOptions& options) {
  auto program = find_program(options.command[0]);
  if (!program.ok()) {
    fmt::print(stderr, "pliant run: {}\n", program.error().message);
    return program.error().code == Code::not_found ? 127 : 126;
  }
  auto [base, remark] = choose_base(options.supply.provider.empty() ? Reach::this_machine : Reach::cluster).or_throw();
  if (!remark.empty()) fmt::print(stderr, "pliant: {}\n", remark);
  auto others = list_own_jobs().or_throw();  // sweeps what dead jobs left
  for (const auto& job : others.jobs)
    if (job.record.name == options.name) throw Failure(Code::refused, already_runs(options.name));
  for (int attempt = 0;; ++attempt) {
    auto record = record_of(options, program.value(), base);
    if (attempt == 0) try_store(record.plan.store);
    auto dir = JobDir::create(base, record);
    bool unlucky = !dir.ok() && options.name.empty() && dir.error().code == Code::refused && attempt < 16;
    if (unlucky) continue;  // the random name is taken
    auto mine = std::move(dir).or_throw();
    auto environment = own_environment();
    write_environment(mine.path(), environment).or_throw();
    if (record.plan.spread()) {
      if (record.plan.trusted_network)
        fmt::print(stderr, "pliant: --network trusted: gradients and state cross the network unencrypted\n");
      write_secret(mine.path(), record).or_throw();
      Head head(options, record, std::move(mine), std::move(environment));
      return head.run();
    }
    Agent agent(options, record, std::move(mine), std::move(environment));
    return agent.run();
  }
}

int attach_to_job(RunOptions options, bool output_chosen) {
  auto found = choose_job(options.attach);
  if (!found.ok()) {
    fmt::print(stderr, "pliant run: {}\n", found.error().message);
    return 1;
  }
  auto job = std::move(found).value();
  auto dir = JobDir::take_up(job.base(), job);
  if (!dir.ok()) {
    fmt::print(stderr, "pliant run: {}\n", dir.error().message);
    return 1;
  }
  if (!output_chosen) options.output = output_mode(job.record.plan.output).value_or(OutputMode::prefix);
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(job.record.grace * 1000));
  if (chdir(job.record.plan.cwd.c_str()) != 0)
    fmt::print(stderr, "pliant: {}\n", errno_error(job.record.plan.cwd).message);
  auto environment = read_environment(job.dir);
  if (job.record.plan.spread() && !job.record.is_part()) {
    Head head(options, job.record, std::move(dir).value(), std::move(environment));
    return head.run();
  }
  Agent agent(options, job.record, std::move(dir).value(), std::move(environment));
  return agent.run();
}

}  // namespace pliant::cli
