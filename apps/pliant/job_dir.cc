#include "apps/pliant/job_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/pliant/coordinator_note.h"
#include "base/own_files.h"
#include "base/system.h"
#include "membership/directory_store.h"

namespace pliant::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLongestName = 120;
constexpr std::chrono::hours kProofKept{1};
constexpr char kJobFile[] = "/job.json";
constexpr char kEnvironmentFile[] = "/environment";
constexpr std::size_t kLongestFile = 64 << 20;

json to_json(const ProcessId& process) { return {{"pid", process.pid}, {"start", process.start}}; }
ProcessId process_from(const json& from) {
  return {from.at("pid").get<pid_t>(), from.at("start").get<std::uint64_t>()};
}

json to_json(const JobPlan& plan) {
  json hosts = json::array();
  for (const auto& host : plan.hosts) hosts.push_back({{"name", host.name}, {"slots", host.slots}});
  return {{"hosts", hosts},
          {"via", plan.via},
          {"discovery", plan.discovery},
          {"pliant", plan.pliant},
          {"endpoint", plan.endpoint},
          {"interface", plan.interface_name},
          {"ports", plan.ports},
          {"store", plan.store},
          {"trusted_network", plan.trusted_network},
          {"coordinator", plan.coordinator},
          {"cwd", plan.cwd},
          {"env", plan.env},
          {"output", plan.output},
          {"threads", plan.threads},
          {"seed", plan.seed},
          {"wanted", plan.wanted},
          {"start", plan.start},
          {"least", plan.least},
          {"most", plan.most},
          {"restarts", plan.restarts},
          {"spare", plan.spare},
          {"warm_ms", plan.warm.count()},
          {"provider", plan.supply.provider},
          {"trace", plan.supply.trace},
          {"price", plan.supply.price},
          {"class", plan.supply.kind},
          {"notice_url", plan.supply.notice_url}};
}

JobPlan plan_from(const json& from) {
  JobPlan plan;
  plan.coordinator = from.at("coordinator");
  plan.cwd = from.at("cwd");
  plan.env = from.at("env").get<std::vector<std::string>>();
  plan.output = from.at("output");
  plan.threads = from.at("threads");
  plan.seed = from.at("seed");
  plan.wanted = from.at("wanted");
  plan.start = from.at("start");
  plan.least = from.at("least");
  plan.most = from.at("most");
  plan.restarts = from.at("restarts");
  plan.spare = from.at("spare");
  plan.warm = std::chrono::milliseconds(from.at("warm_ms").get<std::int64_t>());
  plan.supply.provider = from.at("provider");
  plan.supply.trace = from.at("trace");
  plan.supply.notice_url = from.at("notice_url");
  plan.supply.price = from.at("price");
  plan.supply.kind = from.at("class");
  for (const auto& host : from.at("hosts")) plan.hosts.push_back({host.at("name"), host.at("slots")});
  plan.via = from.at("via");
  plan.discovery = from.at("discovery");
  plan.pliant = from.at("pliant");
  plan.endpoint = from.at("endpoint");
  plan.interface_name = from.at("interface");
  plan.ports = from.at("ports");
  plan.store = from.at("store");
  plan.trusted_network = from.at("trusted_network");
  return plan;
}

/// The lock is released with the descriptor.
Result<Fd> lock_base(const std::string& base) {
  Fd fd(open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_error(base);
  while (flock(fd.get(), LOCK_EX) != 0)
    if (errno != EINTR) return errno_error("cannot lock " + base);
  return fd;
}

/// What a job's processes put into its directory. Anything else was put there by somebody else and is left alone.
bool is_ours(const std::string& file) {
  // Of Slurm: its note, the script, and what its commands have written.
  for (const char* program : {"sbatch", "squeue", "scancel", "sacct", "sinfo"})
    for (const char* end : {".out", ".err"})
      if (file == std::string(program) + end) return true;
  for (const char* ours : {"slurm", "slurm.sh", "slurm.new", "slurm.sh.new"})
    if (file == ours) return true;
  return file.starts_with("job.json") || file.starts_with("status.json") || file.starts_with("environment") ||
         file.starts_with("coordinator.") || file.starts_with(membership::DirectoryStore::kPrefix) ||
         file == "secret" || file == "ticket" || file == "ticket.new" ||
         ((file.starts_with("rank-") || file.starts_with("host-")) &&
          (file.ends_with(".out") || file.ends_with(".err") || file.ends_with(".note")));
}

/// REQUIRES the base's lock. Removes what a dead job left; false if it runs, or if the directory is no job's.
bool remove_if_dead(const std::string& dir) {
  auto job = open_job(dir);
  if (!job.ok() && job.error().code == Code::refused) return false;
  if (job.ok() && (job.value().running() || job.value().elsewhere())) return false;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(dir, ignored))
    if (job.ok() && is_ours(file.path().filename())) fs::remove(file.path(), ignored);
  return rmdir(dir.c_str()) == 0;
}

/// Nothing of this host's part runs, and nobody else can prove to the rest of the job that its workers are dead: the
/// next agent of the host reads it here. Of a job that has ended meanwhile, nobody comes to read it.
bool is_proof(const Job& job) {
  if (!job.record.is_part() || job.record.workers.empty()) return false;
  std::error_code problem;
  auto changed = fs::last_write_time(job.dir, problem);
  return !problem && fs::file_time_type::clock::now() - changed < kProofKept;
}

Error in_the_way(const std::string& path, const std::string& name) {
  auto job = open_job(path);
  if (job.ok() && job.value().elsewhere())
    return {Code::refused,
            fmt::format("job '{}' is one of {}, with which this machine shares {} (choose another --name)", name,
                        job.value().record.machine.name, job.value().base())};
  if (job.ok() && job.value().running()) return {Code::refused, already_runs(name)};
  if (!job.ok() && job.error().code == Code::refused) return job.error();
  return {Code::refused, fmt::format("{} is in the way: not a job's directory (choose another --name)", path)};
}

}  // namespace

std::string record_text(const JobRecord& record) {
  json workers = json::array();
  for (const auto& worker : record.workers) {
    auto entry = to_json(worker.process);
    entry["id"] = worker.id;
    entry["out"] = worker.out;
    entry["err"] = worker.err;
    entry["told"] = worker.told;
    workers.push_back(std::move(entry));
  }
  json hosts = json::array();
  for (const auto& host : record.hosts) {
    auto entry = to_json(host.process);
    entry["name"] = host.name;
    hosts.push_back(std::move(entry));
  }
  json all = {{"name", record.name},
              {"machine", record.machine.name},
              {"boot", record.machine.boot},
              {"job", record.job},
              {"host", record.host.name},
              {"slots", record.host.slots},
              {"program", record.program},
              {"argv", record.argv},
              {"agent", to_json(record.agent)},
              {"workers", workers},
              {"hosts", hosts},
              {"started_at", record.started_at},
              {"grace", record.grace},
              {"output_dir", record.output_dir},
              {"plan", to_json(record.plan)}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<JobRecord> record_from(const std::string& text) {
  try {
    auto all = json::parse(text);
    JobRecord record;
    record.name = all.at("name");
    record.machine = {all.value("machine", ""), all.value("boot", "")};
    record.job = all.at("job");
    record.host = {all.at("host"), all.at("slots")};
    record.program = all.at("program");
    record.argv = all.at("argv").get<std::vector<std::string>>();
    record.agent = process_from(all.at("agent"));
    for (const auto& worker : all.at("workers"))
      record.workers.push_back(
          {process_from(worker), worker.at("out"), worker.at("err"), worker.at("id"), worker.at("told")});
    for (const auto& host : all.at("hosts")) record.hosts.push_back({host.at("name"), process_from(host)});
    record.started_at = all.at("started_at");
    record.grace = all.at("grace");
    record.output_dir = all.at("output_dir");
    record.plan = plan_from(all.at("plan"));
    return record;
  } catch (const json::exception&) {
    return std::nullopt;  // not ours
  }
}

bool Machine::is_another() const {
  if (name.empty()) return false;
  auto here = this_machine();
  return name != here.name && boot != here.boot;  // a machine may be given another name, or start again
}

Machine this_machine() {
  Machine machine{host_name()};
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine.boot);
  return machine;
}

std::string Job::base() const { return fs::path(dir).parent_path().string(); }

Result<Job> open_job(const std::string& dir) {
  auto opened = OwnDirectory::open(dir);
  if (!opened.ok()) return opened.error();
  auto text = opened.value().read_file(kJobFile + 1, kLongestFile);
  if (!text.ok()) return text.error();
  auto record = record_from(text.value());
  if (!record || fs::path(dir).filename() != record->name)
    return Error{Code::not_found, dir + " is not a job's directory"};
  Job job{std::move(*record), dir};
  if (job.elsewhere()) return job;
  job.agent_alive = alive(job.record.agent);
  if (auto note = read_note(dir)) job.coordinator = note->process;
  job.coordinator_alive = alive(job.coordinator);
  for (const auto& worker : job.record.workers) job.workers_alive += alive(worker.process);
  for (const auto& host : job.record.hosts) job.hosts_alive += alive(host.process);
  return job;
}

std::optional<Job> read_job(const std::string& dir) {
  auto job = open_job(dir);
  return job.ok() ? std::optional(std::move(job).value()) : std::nullopt;
}

std::optional<std::string> read_job_file(const std::string& dir, const std::string& name) {
  auto opened = OwnDirectory::open(dir);
  if (!opened.ok()) return std::nullopt;
  auto text = opened.value().read_file(name.substr(1), kLongestFile);
  return text.ok() ? std::optional(std::move(text).value()) : std::nullopt;
}

std::string objection_to_name(std::string_view name) {
  auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '+';
  };
  if (name.empty() || name.size() > kLongestName)
    return fmt::format("a job's name has 1 to {} characters", kLongestName);
  if (name[0] == '.' || name[0] == '-') return "a job's name begins with a letter or a digit";
  if (!std::all_of(name.begin(), name.end(), fits)) return "a job's name has only letters, digits and . _ + -";
  return {};
}

std::string already_runs(const std::string& name) {
  return fmt::format("job '{}' is already running ('pliant ps' lists what runs)", name);
}

std::string part_name(const std::string& job, const std::string& host) { return job + "+" + host; }

Result<JobDir> JobDir::create(const std::string& base, const JobRecord& record) {
  if (auto objection = objection_to_name(record.name); !objection.empty()) return Error{Code::invalid, objection};
  auto lock = lock_base(base);
  if (!lock.ok()) return lock.error();
  auto path = base + "/" + record.name;
  if (mkdir(path.c_str(), 0700) != 0) {
    if (errno != EEXIST) return errno_error("cannot create " + path);
    if (!remove_if_dead(path)) return in_the_way(path, record.name);
    if (mkdir(path.c_str(), 0700) != 0) return errno_error("cannot create " + path);
  }
  JobDir dir(base, path);
  PLIANT_TRY(dir.write(record));
  return dir;
}

Result<JobDir> JobDir::take_up(const std::string& base, Job& job, bool dead_too) {
  auto lock = lock_base(base);
  if (!lock.ok()) return lock.error();
  auto now = open_job(job.dir);
  if (!now.ok() && now.error().code == Code::refused) return now.error();
  if (!now.ok() || (!dead_too && !now.value().running()))
    return Error{Code::not_found, fmt::format("job '{}' has ended", job.record.name)};
  if (now.value().agent_alive)
    return Error{Code::refused, fmt::format("job '{}' has an agent already (process {})", job.record.name,
                                            now.value().record.agent.pid)};
  job = std::move(now).value();
  job.record.agent = this_process();
  JobDir dir(base, job.dir);
  if (auto written = dir.write(job.record); !written.ok()) {
    dir.release();
    return written.error();
  }
  return dir;
}

JobDir::JobDir(JobDir&& other) noexcept : base_(std::move(other.base_)), path_(std::exchange(other.path_, {})) {}

JobDir::~JobDir() {
  if (path_.empty()) return;
  // Under the lock: whoever wants the name next must not find half of it.
  auto lock = lock_base(base_);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Status JobDir::write(const JobRecord& record) const { return write_atomically(path_ + kJobFile, record_text(record)); }

JobList list_jobs(const std::string& base) {
  JobList found;
  std::error_code problem;
  for (fs::directory_iterator entry(base, problem), end; !problem && entry != end; entry.increment(problem)) {
    auto dir = entry->path().string();
    auto name = entry->path().filename().string();
    std::error_code ignored;
    if (!objection_to_name(name).empty() || !entry->is_directory(ignored)) continue;
    auto job = open_job(dir);
    if (!job.ok() && job.error().code == Code::refused) found.refused.emplace_back(name, job.error());
    if (!job.ok() || job.value().elsewhere()) continue;
    if (job.value().running())
      found.jobs.push_back(std::move(job).value());
    else if (!is_proof(job.value()))
      sweep(base, dir);
  }
  std::ranges::sort(found.jobs, {}, [](const Job& job) { return job.record.name; });
  return found;
}

void sweep(const std::string& base, const std::string& dir) {
  if (auto lock = lock_base(base); lock.ok()) remove_if_dead(dir);
}

Status write_environment(const std::string& dir, const std::vector<std::string>& environment) {
  std::string text;
  for (const auto& entry : environment) text.append(entry).push_back('\0');
  return write_atomically(dir + kEnvironmentFile, text);
}

std::vector<std::string> read_environment(const std::string& dir) {
  std::vector<std::string> environment;
  std::istringstream file(read_job_file(dir, kEnvironmentFile).value_or(""));
  for (std::string entry; std::getline(file, entry, '\0');) environment.push_back(entry);
  return environment;
}

std::string place_file(const std::string& dir) { return dir + "/coordinator.address"; }

Status write_place(const std::string& dir, const std::string& address) {
  return write_atomically(place_file(dir), address + "\n");
}

std::string secret_file(const std::string& dir) { return dir + "/secret"; }

Status write_atomically(const std::string& path, std::string_view text) {
  auto draft = path + ".new";
  Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno_error("cannot write " + draft);
  while (!text.empty()) {
    auto size = ::write(file.get(), text.data(), text.size());
    if (size < 0 && errno != EINTR) return errno_error("cannot write " + draft);
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
  }
  if (rename(draft.c_str(), path.c_str()) != 0) return errno_error("cannot write " + path);
  return {};
}

}  // namespace pliant::cli
