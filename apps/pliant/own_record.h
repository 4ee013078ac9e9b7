// The record of the job that this process runs, and its directory: what another agent needs to go on with the job is
// there before it is needed.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "apps/pliant/job_dir.h"
#include "base/result.h"
#include "net/loop.h"

namespace pliant::cli {

class OwnRecord {
 public:
  using OnTrouble = std::function<void(const Error& error)>;
  /// `on_trouble` hears why the record could not be written.
  OwnRecord(JobRecord record, JobDir dir, OnTrouble on_trouble)
      : record_(std::move(record)),
        dir_(std::move(dir)),
        on_trouble_(std::move(on_trouble)),
        attached_(!record_.workers.empty()) {}

  const JobRecord& get() const { return record_; }
  const std::string& path() const { return dir_.path(); }
  /// To a job that had workers already.
  bool attached() const { return attached_; }

  /// A worker was started. Written soon, once for all that are started together.
  void add_worker(WorkerRecord worker, net::Loop& loop);
  /// A coordinator has heard of this worker's end. Written soon.
  void note_told(std::uint64_t worker, net::Loop& loop);
  /// The next agent need not know of this worker, which has ended. Written soon.
  void forget_worker(std::uint64_t worker, net::Loop& loop);
  /// This process leads to that host now. Written at once.
  void set_host(HostRecord host);
  /// The coordinator may come here if its host is lost: where is it then? Chosen once, and written for the coordinator
  /// that is started here.
  Result<std::string> offer_place();
  void note_place(const std::string& address);
  /// Leaves the directory to others.
  void release() { dir_.release(); }

 private:
  void write();
  void write_soon(net::Loop& loop);

  JobRecord record_;
  JobDir dir_;
  const OnTrouble on_trouble_;
  const bool attached_;
  bool stale_ = false;     // it will be written
  std::string own_place_;  // empty: not chosen yet
};

}  // namespace pliant::cli
