// Where this user's jobs live: <base>/<job>/ with job.json and environment, status.json, what belongs to the
// coordinator (coordinator.sock, .json, .lock and .err) and, unless the user wants them elsewhere, the workers' output.
// Of a job on several hosts there is one such directory where `pliant run` is, with secret and ticket and the output of
// the hosts' agents, and <base>/<job>+<host>/ on every host, where its agent is.
//
// A job's directory is believed only if it is this user's and nobody else can write to it (base/own_files.h): what it
// says is run and signalled. Its files are read through the directory that was checked, and not through links.
//
// Processes that look at the same base at the same time agree by a lock on the base directory, held only while a job
// is created or a dead one is swept away. Reading needs no lock: files are replaced by rename.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/pliant/process.h"
#include "base/result.h"

namespace pliant::cli {

/// A host of a job on several, and how many workers it takes.
struct HostSlots {
  std::string name;
  std::uint32_t slots = 1;
  bool operator==(const HostSlots&) const = default;
};

struct WorkerRecord {
  ProcessId process;
  std::string out;  ///< where its stdout goes
  std::string err;
  std::uint64_t id = 0;
  bool told = false;  ///< a coordinator has heard of its end
};

/// The process that leads to the agent of a host.
struct HostRecord {
  std::string name;
  ProcessId process;
};

/// Where a job's workers come from, and what they cost. All may be empty.
struct SupplyPlan {
  std::string provider{};    ///< "slurm:…"; empty: this machine, or hosts
  std::string trace{};       ///< a file: what was to be had
  std::string notice_url{};  ///< that says when a machine is taken away
  std::string price{};       ///< of a worker's hour: see parse_prices
  std::string kind{};        ///< the price class of the workers here
};

/// What a job shall be: all that another agent or coordinator needs to go on with it.
struct JobPlan {
  std::string coordinator;  ///< its address: of a socket, or "tcp:…" on another host
  std::string cwd;
  std::vector<std::string> env;  ///< KEY=VALUE, as the user gave them
  std::string output = "prefix";
  int threads = 0;
  std::uint64_t seed = 42;
  std::uint32_t wanted = 1;  ///< at the start
  std::uint32_t start = 1;   ///< so many make the first view
  std::uint32_t least = 1;
  std::uint32_t most = 512;
  int restarts = 10;
  std::uint32_t spare = 0;                ///< workers beyond those wanted
  std::chrono::milliseconds warm{10000};  ///< that others wait who are not needed

  SupplyPlan supply{};

  // Of a job on several hosts.
  std::vector<HostSlots> hosts{};  ///< empty: the job runs on this one, or this is the plan of one host's agent
  std::string via{};               ///< the command that starts something on {host}
  std::string discovery{};         ///< a script that names the hosts there are now
  std::string pliant{};            ///< where this program is on the hosts
  std::string endpoint{};          ///< where the coordinator is reached from there: address and port
  std::string interface_name{};    ///< that workers are reached at; empty: the one that leads to the coordinator
  std::string ports{};             ///< "4000-4100": that workers listen at; empty: the kernel's choice
  /// That decides outside of the job; empty: there is none. It ends with a random part, which is this run's alone.
  std::string store{};
  bool trusted_network = false;  ///< bulk data between hosts is not encrypted
  bool spread() const { return !endpoint.empty(); }
};

/// A machine whose jobs may lie in a folder that others see as well.
struct Machine {
  std::string name{};  ///< empty: not known
  std::string boot{};  ///< changes with each
  /// What runs there cannot be seen from here: neither name nor boot are this one's.
  bool is_another() const;
};
Machine this_machine();

/// job.json.
struct JobRecord {
  std::string name;               ///< of its directory
  Machine machine{};              ///< whose processes these are
  std::string job{};              ///< of which this is one host's part; empty: all of it
  HostSlots host{"", 0};          ///< and that host
  std::string program;            ///< as found, with its path
  std::vector<std::string> argv;  ///< as the user wrote it
  ProcessId agent;
  std::vector<WorkerRecord> workers;  ///< all that were started here, in that order, but for those that are forgotten
  std::vector<HostRecord> hosts{};    ///< whose agents were started from here
  double started_at = 0;              ///< seconds since 1970
  double grace = 5;                   ///< seconds between asking and killing
  std::string output_dir;
  JobPlan plan;

  bool is_part() const { return !job.empty(); }
  const std::string& job_name() const { return is_part() ? job : name; }
  /// "host b: " where there are several.
  std::string where() const { return is_part() ? "host " + host.name + ": " : std::string(); }
};
/// As in job.json. For agents on other hosts this is also how they hear what to start.
std::string record_text(const JobRecord& record);
std::optional<JobRecord> record_from(const std::string& text);

/// A job found in the base directory.
struct Job {
  JobRecord record;
  std::string dir;
  ProcessId coordinator;
  bool agent_alive = false;
  bool coordinator_alive = false;
  int workers_alive = 0;
  int hosts_alive = 0;  ///< processes that lead to them
  /// The base that it was found in.
  std::string base() const;
  /// Of a job of another machine nothing is known.
  bool elsewhere() const { return record.machine.is_another(); }
  bool running() const { return agent_alive || coordinator_alive || workers_alive + hosts_alive > 0; }
};

/// Says what is wrong with a job's name, or nothing.
std::string objection_to_name(std::string_view name);
/// What to say if a name is taken.
std::string already_runs(const std::string& name);
/// The name of a host's part of a job.
std::string part_name(const std::string& job, const std::string& host);

/// A running job's own directory. Destroying it removes it with all that is inside.
class JobDir {
 public:
  /// Makes <base>/<record.name> (0700) with job.json in it. Code::refused if a job of that name runs; what a dead one
  /// left behind is removed.
  static Result<JobDir> create(const std::string& base, const JobRecord& record);
  /// Takes up the directory of a running job whose agent is gone, in the name of this process: `job` becomes what its
  /// record says now. Code::refused if it has an agent, and Code::not_found if nothing of it runs, unless `dead_too`.
  static Result<JobDir> take_up(const std::string& base, Job& job, bool dead_too = false);
  JobDir(JobDir&& other) noexcept;
  JobDir& operator=(JobDir&&) = delete;
  ~JobDir();

  const std::string& path() const { return path_; }
  Status write(const JobRecord& record) const;
  /// Leaves it to others: from now on destroying this removes nothing.
  void release() { path_.clear(); }

 private:
  JobDir(std::string base, std::string path) : base_(std::move(base)), path_(std::move(path)) {}
  std::string base_;
  std::string path_;  // empty: moved from
};

/// The job in a directory, whether it runs or not. Code::refused if others may have written what is there;
/// Code::not_found if that is no job's.
Result<Job> open_job(const std::string& dir);
/// The same without the reason.
std::optional<Job> read_job(const std::string& dir);
/// The text of a file of a job's directory; nothing if there is none that can be believed. `name` begins with a slash.
std::optional<std::string> read_job_file(const std::string& dir, const std::string& name);

struct JobList {
  std::vector<Job> jobs;                                 ///< running ones of this machine, in order of their names
  std::vector<std::pair<std::string, Error>> refused{};  ///< names of directories that are not believed, and why
};
/// Directories of dead jobs are removed on the way; that of a host's part, which proves the deaths of its workers, when
/// an hour has passed.
JobList list_jobs(const std::string& base);
/// Removes a job's directory if nothing of the job runs any more.
void sweep(const std::string& base, const std::string& dir);

/// The environment that the job's first agent had, for workers that later ones start.
Status write_environment(const std::string& dir, const std::vector<std::string>& environment);
std::vector<std::string> read_environment(const std::string& dir);

/// Where the coordinator is now ("tcp:…"), as this host's agent or the head knows it; for workers and commands, if
/// there is a store.
std::string place_file(const std::string& dir);
Status write_place(const std::string& dir, const std::string& address);
/// The job's secret (net::Secret), in its directory; there if the job has several hosts.
std::string secret_file(const std::string& dir);

/// Replaces a file at once: readers see the old or the new text, never a part. For directories of our own.
Status write_atomically(const std::string& path, std::string_view text);

}  // namespace pliant::cli
