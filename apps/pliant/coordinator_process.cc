#include "apps/pliant/coordinator_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "agent/chronicle.h"
#include "agent/tenure.h"
#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/coordinator_server.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/job_records.h"
#include "apps/pliant/process.h"
#include "apps/pliant/rescue.h"
#include "apps/pliant/worker_env.h"
#include "base/log.h"
#include "base/own_files.h"
#include "membership/signed_store.h"
#include "net/dialer.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLoneliness = 3s;
constexpr Nanos kTimeToHear = 30s;  // for hosts that are out of reach when the job is over
constexpr Nanos kTimeToServe = 5s;  // the agent starts another one, if there still is an agent
constexpr auto kLook = 50ms;
constexpr auto kBetweenLooks = 500ms;  // into the store

agent::EventLog open_log(const JobPlan& plan) {
  agent::EventLog log;
  log.open(open_records(plan, "coordinator"));
  return log;
}

class CoordinatorProcess {
 public:
  CoordinatorProcess(Job job, Fd lock)
      : job_(std::move(job)),
        lock_(std::move(lock)),
        chronicle_(open_log(job_.record.plan)),
        attended_at_(clock_.now()) {}
  Status start();
  /// Serves until the job is over. Leaves no file if nothing of the job is left. The exit code.
  int run();

 private:
  std::optional<membership::Memory> own_note() const;
  Status serve(const std::optional<membership::Memory>& memory);
  Result<Fd> listen() const;
  Status open_to_others();
  void watch_signals();
  void remember(const membership::Memory& memory);
  bool is_agent(pid_t pid) const;
  std::string charter() const;
  void look_around();
  void leave_note() const;

  Job job_;
  Fd lock_;  // held as long as this process lives: there is only one
  SteadyClock clock_;
  net::Loop loop_;
  Fd signals_;
  agent::Chronicle chronicle_;
  std::optional<CoordinatorServer> server_;
  Nanos attended_at_;
  bool was_attended_ = false;
  bool told_to_end_ = false;
  bool succeeded_ = false;               // by a coordinator elsewhere
  std::optional<agent::Tenure> tenure_;  // after what its events use
};

membership::CoordinatorOptions options_of(const JobRecord& record) {
  const auto& plan = record.plan;
  return {record.job_name(), plan.seed,
          plan.wanted,       plan.start,
          plan.least,        plan.most,
          plan.restarts,     plan.spare,
          Nanos(plan.warm),  !value_in(plan.env, "PLIANT_CHECKPOINT").empty()};
}

/// The lock decides who serves, so a socket that is still there belongs to a coordinator that is gone.
Result<Fd> CoordinatorProcess::listen() const {
  auto address = job_.record.plan.coordinator;
  if (net::is_remote(address)) address = coordinator_address(job_.dir);  // it was elsewhere before
  if (!address.starts_with('@')) unlink(address.c_str());
  return net::listen_at(address);
}

Status CoordinatorProcess::start() {
  watch_signals();
  loop_.every(kLook, [this] { look_around(); });
  std::unique_ptr<membership::Store> store;
  if (const auto& url = job_.record.plan.store; !url.empty()) {
    auto secret = net::Secret::from_file(secret_file(job_.dir));
    if (!secret.ok()) return secret.error();
    auto opened = membership::open_signed_store(loop_, url, {secret.value(), job_.record.job_name()});
    if (!opened.ok()) return opened.error();
    store = std::move(opened).value();
  }
  agent::TenureEvents events;
  events.serve = [this](const auto& memory) { serve(memory).or_throw(); };
  events.succeeded = [this] {
    succeeded_ = true;
    loop_.stop();
  };
  agent::TenureOptions options{job_.record.job_name(), "tcp:" + job_.record.plan.endpoint, own_note(),
                               !job_.record.is_part()};
  tenure_.emplace(clock_, std::move(store), std::move(options), std::move(events));
  tenure_->begin();
  loop_.every(kBetweenLooks, [this] { tenure_->look(); });
  return {};
}

std::optional<membership::Memory> CoordinatorProcess::own_note() const {
  auto note = read_note(job_.dir);
  return note ? std::optional(note->memory) : std::nullopt;
}

Status CoordinatorProcess::serve(const std::optional<membership::Memory>& memory) {
  auto listener = listen();
  if (!listener.ok()) return listener.error();
  chronicle_.begun(getpid(), memory);
  ServerEvents events;
  events.is_agent = [this](pid_t pid) { return is_agent(pid); };
  events.note_of = [this](std::uint64_t worker) { return session::read_worker_note(note_file(job_.dir, worker)); };
  events.charter = [this] { return charter(); };
  events.remember = [this](const membership::Memory& now) { remember(now); };
  events.newest_checkpoint = [this] { return newest_checkpoint_of(job_.record); };
  events.once_sure = [this](std::function<void(bool sure)> say) { tenure_->once_sure(std::move(say)); };
  server_.emplace(loop_, std::move(listener).value(), options_of(job_.record), memory, std::move(events), chronicle_);
  PLIANT_TRY(open_to_others());
  for (const auto& worker : job_.record.workers)
    if (alive(worker.process)) server_->know(worker.id, worker.process.pid);
  return {};
}

/// At the port that the job was given when it began, so that workers find the next coordinator where this one was.
Status CoordinatorProcess::open_to_others() {
  if (!job_.record.plan.spread()) return {};
  auto endpoint = net::parse_endpoint(job_.record.plan.endpoint);
  if (!endpoint.ok()) return endpoint.error();
  auto secret = net::Secret::from_file(secret_file(job_.dir));
  if (!secret.ok()) return secret.error();
  auto listener = net::tcp_listen(endpoint.value().address, {endpoint.value().port, endpoint.value().port});
  if (!listener.ok()) return listener.error();
  server_->open_to_others(std::move(listener.value().socket), secret.value());
  return {};
}

void CoordinatorProcess::watch_signals() {
  setsid();  // fails if the agent has seen to it
  for (int number : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ}) signal(number, SIG_IGN);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  signals_ = Fd(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  loop_.watch(signals_.get(), [this] {
    told_to_end_ = true;
    loop_.stop();
  });
}

void CoordinatorProcess::remember(const membership::Memory& memory) {
  auto written = write_atomically(job_.dir + kNoteFile, note_text({this_process(), memory}));
  if (!written.ok()) log::warn("coordinator: {}", written.error().message);
  tenure_->remember(memory);
}

bool CoordinatorProcess::is_agent(pid_t pid) const {
  auto job = read_job(job_.dir);
  return job && job->record.agent.pid == pid;
}

/// The job without what is only of this host.
std::string CoordinatorProcess::charter() const {
  auto record = job_.record;
  record.name = job_.record.job_name();
  record.job.clear();
  record.host = {"", 0};
  record.agent = {};
  record.workers.clear();
  record.hosts.clear();
  record.plan.hosts.clear();
  record.plan.via.clear();
  record.plan.discovery.clear();
  record.plan.supply.provider.clear();
  record.plan.supply.trace.clear();
  record.plan.coordinator = "tcp:" + record.plan.endpoint;
  if (record.output_dir == job_.dir) record.output_dir.clear();
  return record_text(record);
}

void CoordinatorProcess::look_around() {
  auto now = clock_.now();
  if (!server_) {
    if (now - attended_at_ >= kTimeToServe) loop_.stop();
    return;
  }
  if (server_->attended()) {
    was_attended_ = true;
    attended_at_ = now;
    return;
  }
  bool over = was_attended_ && server_->coordinator().over();
  bool done = over && tenure_->is_stored() && !server_->coordinator().some_have_not_heard();
  if (done || now - attended_at_ >= (over ? kTimeToHear : kLoneliness)) loop_.stop();
}

/// This process does not keep the directory any more. What it knows of the job is for the next coordinator, if an agent
/// has come meanwhile that does.
void CoordinatorProcess::leave_note() const {
  auto note = read_note(job_.dir);
  if (!note) return;
  note->process = {};
  auto written = write_atomically(job_.dir + kNoteFile, note_text(*note));
  if (!written.ok()) unlink((job_.dir + kNoteFile).c_str());
}

int CoordinatorProcess::run() {
  loop_.run();
  chronicle_.ends(told_to_end_ ? "told to" : succeeded_ ? "there is another one elsewhere" : "nobody is left");
  if (server_) log::debug("coordinator: {} connections or messages refused", server_->refused());
  server_.reset();
  if (told_to_end_) return 0;  // whoever said so cleans up
  leave_note();
  sweep(std::filesystem::path(job_.dir).parent_path(), job_.dir);
  return succeeded_ ? kCoordinatorThere : 0;
}

int run_coordinator(const std::string& dir) {
  leave_no_core_dumps();
  auto job = open_job(dir).or_throw();
  auto lock = OwnDirectory::open(dir).or_throw().open_file("coordinator.lock", O_RDWR | O_CREAT).or_throw();
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    fmt::print(stderr, "pliant coordinator: job '{}' has a coordinator already\n", job.record.name);
    return kCoordinatorThere;
  }
  CoordinatorProcess process(std::move(job), std::move(lock));
  process.start().or_throw();
  return process.run();
}

}  // namespace

void add_coordinator(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("coordinator", "Serve a job as its coordinator")->group("");
  auto dir = std::make_shared<std::string>();
  command->add_option("DIR", *dir, "The job's directory")->required();
  command->callback([dir, &action] { action = [dir] { return run_coordinator(*dir); }; });
}

}  // namespace pliant::cli
