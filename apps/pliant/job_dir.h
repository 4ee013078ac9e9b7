// Where this user's jobs live: <base>/<job>/ with job.json, status.json, the coordinator's socket and, unless the user
// wants them elsewhere, the workers' output.
//
// Processes that look at the same base at the same time agree by a lock on the base directory, held only while a job
// is created or a dead one is swept away. Reading needs no lock: files are replaced by rename.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/pliant/process.h"
#include "base/result.h"

namespace pliant::cli {

struct WorkerRecord {
  ProcessId process;
  std::string out;  ///< where its stdout goes
  std::string err;
};

/// job.json.
struct JobRecord {
  std::string name;
  std::string program;            ///< as found, with its path
  std::vector<std::string> argv;  ///< as the user wrote it
  ProcessId agent;
  std::vector<WorkerRecord> workers;  ///< by rank; empty until they are started
  double started_at = 0;              ///< seconds since 1970
  double grace = 5;                   ///< seconds between asking and killing
  std::string output_dir;
};

/// A job found in the base directory.
struct Job {
  JobRecord record;
  std::string dir;
  bool agent_alive = false;
  int workers_alive = 0;
  bool running() const { return agent_alive || workers_alive > 0; }
};

/// $PLIANT_DIR, $XDG_RUNTIME_DIR/pliant or /tmp/pliant-<uid>. Created (0700) if it is not there; Code::refused if it
/// belongs to another user.
Result<std::string> job_base();
/// Says what is wrong with a job's name, or nothing.
std::string objection_to_name(std::string_view name);

/// A running job's own directory. Destroying it removes it with all that is inside.
class JobDir {
 public:
  /// Makes <base>/<record.name> (0700) with job.json in it. Code::refused if a job of that name runs; what a dead one
  /// left behind is removed.
  static Result<JobDir> create(const std::string& base, const JobRecord& record);
  JobDir(JobDir&& other) noexcept;
  JobDir& operator=(JobDir&&) = delete;
  ~JobDir();

  const std::string& path() const { return path_; }
  Status write(const JobRecord& record) const;

 private:
  JobDir(std::string base, std::string path) : base_(std::move(base)), path_(std::move(path)) {}
  std::string base_;
  std::string path_;  // empty: moved from
};

/// Running jobs in order of their names. Directories of dead ones are removed on the way.
std::vector<Job> list_jobs(const std::string& base);
/// Removes a job's directory if nothing of the job runs any more.
void sweep(const std::string& base, const std::string& dir);

/// Replaces a file at once: readers see the old or the new text, never a part.
Status write_atomically(const std::string& path, std::string_view text);

}  // namespace pliant::cli
