#include "apps/pliant/join.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "apps/pliant/agent.h"
#include "apps/pliant/job_base.h"
#include "apps/pliant/jobs.h"
#include "apps/pliant/ticket.h"
#include "apps/pliant/worker_env.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToAnswer = 20s;  // the coordinator may be about to be replaced
constexpr auto kBetweenCalls = 200ms;

/// One question to the coordinator: what is this host to start?
class Inquiry {
 public:
  Inquiry(const Ticket& ticket, const HostSlots& here)
      : hello_{ticket.job, here.name, here.slots},
        end_(clock_.now() + kTimeToAnswer),
        dialer_(
            loop_, "tcp:" + ticket.endpoint, agent_credentials(ticket.job, ticket.secret),
            [this](net::Line line) { ask(std::move(line)); }, [this](const Error& error) { why_ = error.message; }) {}

  Result<JobRecord> run() {
    loop_.every(kBetweenCalls, [this] { tick(); });
    loop_.post([this] { tick(); });
    loop_.run();
    if (line_) loop_.unwatch(line_.fd());
    if (charter_) return *charter_;
    return Error{Code::peer_lost, fmt::format("job '{}' cannot be reached: {}", hello_.job, why_)};
  }

 private:
  void tick() {
    if (clock_.now() >= end_) return loop_.stop();
    if (!line_) dialer_.call();
  }

  void ask(net::Line line) {
    line_ = std::move(line);
    loop_.watch(line_.fd(), [this] { read(); });
    (void)line_.try_send(hello_);
    read();
  }

  void read() {
    while (line_) {
      auto received = line_.receive();
      if (!received.ok()) return hang_up(received.error().message);
      if (!received.value()) return;
      if (const auto* refusal = std::get_if<wire::Refusal>(&received.value()->message))
        return hang_up(printable(refusal->reason));
      if (const auto* charter = std::get_if<wire::Charter>(&received.value()->message)) {
        charter_ = record_from(charter->text);
        if (!charter_) why_ = "its plan makes no sense (another version of Pliant?)";
        return loop_.stop();
      }
    }
  }

  void hang_up(const std::string& why) {
    why_ = why;
    loop_.unwatch(line_.fd());
    line_.close();
  }

  const wire::AgentHello hello_;
  SteadyClock clock_;
  Nanos end_;
  net::Loop loop_;
  net::Line line_;
  std::optional<JobRecord> charter_;
  std::string why_ = "nobody answers";
  net::Dialer dialer_;
};

HostSlots this_host(HostSlots wanted) {
  if (wanted.name.empty()) wanted.name = host_name();
  if (wanted.slots == 0) wanted.slots = static_cast<std::uint32_t>(usable_cores());
  return wanted;
}

/// The job's record as this host's part of it.
JobRecord part_of(JobRecord record, const HostSlots& here, const std::string& base) {
  record.job = record.name;
  record.name = part_name(record.job, here.name);
  record.host = here;
  record.machine = this_machine();
  record.agent = this_process();
  record.started_at = unix_seconds();
  if (record.output_dir.empty()) record.output_dir = base + "/" + record.name;
  return record;
}

/// Files and folders that the job names may be elsewhere here, or not be at all.
void go_to(const std::string& folder) {
  if (chdir(folder.c_str()) != 0) fmt::print(stderr, "pliant: {}\n", errno_error(folder).message);
}

/// What an agent of this host has left that is gone: workers that live, or that have died and nobody knows. Of the same
/// job, not of one that was called so before: they have one secret.
std::optional<Job> earlier_part(const std::string& name, const Ticket& ticket) {
  for (const auto& base : job_bases().or_throw()) {
    auto dir = base + "/" + name;
    auto job = read_job(dir);
    auto secret = job ? net::Secret::from_file(secret_file(dir)) : Error{Code::not_found, ""};
    if (secret.ok() && secret.value().text() == ticket.secret.text()) return job;
  }
  return std::nullopt;
}

int serve(const RunOptions& options, JobRecord record, JobDir dir) {
  go_to(record.plan.cwd);
  auto environment = record.workers.empty() ? own_environment() : read_environment(dir.path());
  Agent agent(options, std::move(record), std::move(dir), std::move(environment));
  return agent.run();
}

}  // namespace

int join_job(RunOptions options) {
  auto ticket = read_ticket(options.join).or_throw();
  if (options.join == "-") setsid();  // whatever led here may go
  auto here = this_host(options.here);
  if (auto wrong = objection_to_name(part_name(ticket.job, here.name)); !wrong.empty())
    throw Failure(Code::invalid, fmt::format("host '{}': {}", here.name, wrong));
  auto [base, remark] = choose_base().or_throw();
  if (!remark.empty()) fmt::print(stderr, "pliant: {}\n", remark);
  auto charter = Inquiry(ticket, here).run().or_throw();
  options.output = output_mode(charter.plan.output).value_or(OutputMode::prefix);
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(charter.grace * 1000));
  options.status = StatusMode::off;

  auto record = part_of(std::move(charter), here, base);
  record.plan.supply.kind = options.supply.kind;
  if (auto before = earlier_part(record.name, ticket)) {
    auto taken = JobDir::take_up(before->base(), *before, true);
    if (taken.ok()) return serve(options, before->record, std::move(taken).value());
    fmt::print(stderr, "pliant run: {}\n", taken.error().message);
    return kAgentThere;
  }
  auto dir = JobDir::create(base, record).or_throw();
  ticket.secret.save(secret_file(dir.path())).or_throw();
  write_environment(dir.path(), own_environment()).or_throw();
  return serve(options, std::move(record), std::move(dir));
}

}  // namespace pliant::cli
