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

#include "apps/pliant/coordinator_chronicle.h"
#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/coordinator_server.h"
#include "apps/pliant/job_dir.h"
#include "base/log.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLoneliness = 3s;
constexpr auto kLook = 50ms;

class CoordinatorProcess {
 public:
  CoordinatorProcess(Job job, Fd lock)
      : job_(std::move(job)), lock_(std::move(lock)), chronicle_(job_.record.plan), attended_at_(clock_.now()) {}
  Status start();
  /// Serves until the job is over. Leaves no file if nothing of the job is left.
  void run();

 private:
  Result<Fd> listen() const;
  Status open_to_others();
  void watch_signals();
  void remember(const membership::Memory& memory) const;
  bool is_agent(pid_t pid) const;
  void look_around();

  Job job_;
  Fd lock_;  // held as long as this process lives: there is only one
  SteadyClock clock_;
  net::Loop loop_;
  Fd signals_;
  Chronicle chronicle_;
  std::optional<CoordinatorServer> server_;
  Nanos attended_at_;
  bool was_attended_ = false;
  bool told_to_end_ = false;
};

membership::CoordinatorOptions options_of(const JobRecord& record) {
  const auto& plan = record.plan;
  return {record.name, plan.seed, plan.wanted, plan.start, plan.least, plan.most, plan.restarts};
}

/// The lock decides who serves, so a socket that is still there belongs to a coordinator that is gone.
Result<Fd> CoordinatorProcess::listen() const {
  const auto& address = job_.record.plan.coordinator;
  if (!address.starts_with('@')) unlink(address.c_str());
  return net::listen_at(address);
}

Status CoordinatorProcess::start() {
  watch_signals();
  auto listener = listen();
  if (!listener.ok()) return listener.error();
  std::optional<membership::Memory> memory;
  if (auto note = read_note(job_.dir)) memory = note->memory;
  chronicle_.begun(memory);
  ServerEvents events;
  events.is_agent = [this](pid_t pid) { return is_agent(pid); };
  events.remember = [this](const membership::Memory& now) { remember(now); };
  server_.emplace(loop_, std::move(listener).value(), options_of(job_.record), memory, std::move(events), chronicle_);
  PLIANT_TRY(open_to_others());
  for (const auto& worker : job_.record.workers)
    if (alive(worker.process)) server_->know(worker.id, worker.process.pid);
  loop_.every(kLook, [this] { look_around(); });
  return {};
}

/// At the port that the job was given when it began, so that workers find the next coordinator where this one was.
Status CoordinatorProcess::open_to_others() {
  if (job_.record.plan.hosts.empty()) return {};
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

void CoordinatorProcess::remember(const membership::Memory& memory) const {
  auto written = write_atomically(job_.dir + kNoteFile, note_text({this_process(), memory}));
  if (!written.ok()) log::warn("coordinator: {}", written.error().message);
}

bool CoordinatorProcess::is_agent(pid_t pid) const {
  auto job = read_job(job_.dir);
  return job && job->record.agent.pid == pid;
}

void CoordinatorProcess::look_around() {
  auto now = clock_.now();
  if (server_->attended()) {
    was_attended_ = true;
    attended_at_ = now;
    return;
  }
  bool over = was_attended_ && server_->coordinator().over();
  if (over || now - attended_at_ >= kLoneliness) loop_.stop();
}

void CoordinatorProcess::run() {
  loop_.run();
  chronicle_.ends(told_to_end_ ? "told to" : "nobody is left");
  log::debug("coordinator: {} connections or messages refused", server_->refused());
  server_.reset();
  if (told_to_end_) return;  // whoever said so cleans up
  unlink((job_.dir + kNoteFile).c_str());
  sweep(std::filesystem::path(job_.dir).parent_path(), job_.dir);
}

int run_coordinator(const std::string& dir) {
  auto job = read_job(dir);
  if (!job) throw Failure(Code::not_found, dir + " is not a job's directory");
  Fd lock(open((dir + "/coordinator.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) throw Failure(Code::io, errno_error("cannot open the lock of job '" + job->record.name + "'").message);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    fmt::print(stderr, "pliant coordinator: job '{}' has a coordinator already\n", job->record.name);
    return kCoordinatorThere;
  }
  CoordinatorProcess process(std::move(*job), std::move(lock));
  process.start().or_throw();
  process.run();
  return 0;
}

}  // namespace

void add_coordinator(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("coordinator", "Serve a job as its coordinator")->group("");
  auto dir = std::make_shared<std::string>();
  command->add_option("DIR", *dir, "The job's directory")->required();
  command->callback([dir, &action] { action = [dir] { return run_coordinator(*dir); }; });
}

}  // namespace pliant::cli
