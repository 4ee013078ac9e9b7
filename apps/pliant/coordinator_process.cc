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

#include "apps/pliant/coordinator_chronicle.h"
#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/coordinator_server.h"
#include "apps/pliant/election.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/rescue.h"
#include "base/log.h"
#include "membership/store.h"
#include "net/dialer.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLoneliness = 3s;
constexpr auto kLook = 50ms;
constexpr auto kBetweenLooks = 500ms;  // into the store
constexpr std::uint64_t kNumbersAhead = 64;

class CoordinatorProcess {
 public:
  CoordinatorProcess(Job job, Fd lock)
      : job_(std::move(job)), lock_(std::move(lock)), chronicle_(job_.record.plan), attended_at_(clock_.now()) {}
  Status start();
  /// Serves until the job is over. Leaves no file if nothing of the job is left. The exit code.
  int run();

 private:
  std::optional<membership::Memory> own_note() const;
  Status serve(const std::optional<membership::Memory>& memory);
  void read_memory();
  void write_memory();
  void once_sure(std::function<void(bool sure)> say);
  void say_all(bool sure);
  bool is_elsewhere(const Result<membership::Entry>& place);
  void look_for_successor();
  void end_when_forgotten();
  Result<Fd> listen() const;
  Status open_to_others();
  void watch_signals();
  void remember(const membership::Memory& memory);
  bool is_agent(pid_t pid) const;
  std::string charter() const;
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
  bool succeeded_ = false;  // by a coordinator elsewhere

  // With a store.
  std::unique_ptr<membership::Store> store_;
  std::string memory_;          // to be written
  std::uint64_t revision_ = 0;  // of what is stored
  bool writing_ = false, stale_ = false;
  std::vector<std::function<void(bool sure)>> unsaid_;  // until what they promise is stored
  bool ending_ = false;
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
  if (job_.record.plan.store.empty()) return serve(own_note());
  auto store = membership::open_store(loop_, job_.record.plan.store);
  if (!store.ok()) return store.error();
  store_ = std::move(store).value();
  store_->read(place_key(job_.record.job_name()), [this](const auto& place) {
    if (!is_elsewhere(place)) read_memory();
  });
  loop_.every(kBetweenLooks, [this] { look_for_successor(); });
  return {};
}

std::optional<membership::Memory> CoordinatorProcess::own_note() const {
  auto note = read_note(job_.dir);
  return note ? std::optional(note->memory) : std::nullopt;
}

Status CoordinatorProcess::serve(const std::optional<membership::Memory>& memory) {
  auto listener = listen();
  if (!listener.ok()) return listener.error();
  chronicle_.begun(memory);
  ServerEvents events;
  events.is_agent = [this](pid_t pid) { return is_agent(pid); };
  events.charter = [this] { return charter(); };
  events.remember = [this](const membership::Memory& now) { remember(now); };
  events.newest_checkpoint = [this] { return newest_checkpoint_of(job_.record); };
  events.once_sure = [this](std::function<void(bool sure)> say) { once_sure(std::move(say)); };
  server_.emplace(loop_, std::move(listener).value(), options_of(job_.record), memory, std::move(events), chronicle_);
  PLIANT_TRY(open_to_others());
  for (const auto& worker : job_.record.workers)
    if (alive(worker.process)) server_->know(worker.id, worker.process.pid);
  return {};
}

// ---- the store ----

/// What a coordinator elsewhere remembered last. It may have used more numbers than it could write down.
void CoordinatorProcess::read_memory() {
  store_->read(memory_key(job_.record.job_name()), [this](const Result<membership::Entry>& entry) {
    auto memory = own_note();
    if (!entry.ok()) log::warn("coordinator: {}", entry.error().message);
    if (entry.ok()) revision_ = entry.value().revision;
    if (revision_) {
      auto note = note_from(entry.value().text);
      if (note) memory = note->memory;
      if (memory) memory->next_id += kNumbersAhead;
    }
    serve(memory).or_throw();
  });
}

void CoordinatorProcess::write_memory() {
  if (!store_) return;
  stale_ = true;
  if (std::exchange(writing_, true)) return;
  stale_ = false;
  store_->replace(memory_key(job_.record.job_name()), revision_, memory_, [this](const auto& attempt) {
    writing_ = false;
    // Lost against a predecessor, a successor, or an attempt that seemed to fail.
    if (!attempt.ok() || !attempt.value().won) stale_ = true;
    if (!attempt.ok()) return say_all(false);  // it may answer others
    revision_ = attempt.value().now.revision;
    look_for_successor();
  });
}

void CoordinatorProcess::once_sure(std::function<void(bool sure)> say) {
  unsaid_.push_back(std::move(say));
  if (!store_) return say_all(true);
  if (!writing_) look_for_successor();
}

void CoordinatorProcess::say_all(bool sure) {
  for (const auto& say : std::exchange(unsaid_, {})) say(sure);
}

bool CoordinatorProcess::is_elsewhere(const Result<membership::Entry>& place) {
  if (!place.ok() || place.value().revision == 0) return false;
  succeeded_ = place.value().text != "tcp:" + job_.record.plan.endpoint;
  if (succeeded_) loop_.stop();
  return succeeded_;
}

/// Members follow who has the higher term; this saves them the choice, and what the successor remembers. Whoever is
/// still in place after its memory was stored is sure that a successor will read it.
void CoordinatorProcess::look_for_successor() {
  bool stored = !stale_ && !writing_;
  auto unsaid = stored ? std::exchange(unsaid_, {}) : std::vector<std::function<void(bool sure)>>();
  store_->read(place_key(job_.record.job_name()), [this, unsaid = std::move(unsaid)](const auto& place) {
    if (is_elsewhere(place)) return;
    for (const auto& say : unsaid) say(place.ok());
    if (stale_ && !writing_) write_memory();
  });
}

/// The job is over, and the store need not know of it any more.
void CoordinatorProcess::end_when_forgotten() {
  if (!store_) return loop_.stop();
  if (std::exchange(ending_, true)) return;
  store_->remove_all(job_.record.job_name() + "/", [this](const Status&) { loop_.stop(); });
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
  memory_ = note_text({this_process(), memory});
  auto written = write_atomically(job_.dir + kNoteFile, memory_);
  if (!written.ok()) log::warn("coordinator: {}", written.error().message);
  write_memory();
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
  if (!server_) return;
  if (server_->attended()) {
    was_attended_ = true;
    attended_at_ = now;
    return;
  }
  bool over = was_attended_ && server_->coordinator().over();
  if (over) return end_when_forgotten();
  if (now - attended_at_ >= kLoneliness) loop_.stop();
}

int CoordinatorProcess::run() {
  loop_.run();
  chronicle_.ends(told_to_end_ ? "told to" : succeeded_ ? "there is another one elsewhere" : "nobody is left");
  if (server_) log::debug("coordinator: {} connections or messages refused", server_->refused());
  server_.reset();
  if (told_to_end_) return 0;  // whoever said so cleans up
  unlink((job_.dir + kNoteFile).c_str());
  sweep(std::filesystem::path(job_.dir).parent_path(), job_.dir);
  return succeeded_ ? kCoordinatorThere : 0;
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
