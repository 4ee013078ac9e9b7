// The environment that a worker finds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pliant::cli {

struct WorkerEnv {
  std::string job;
  std::string coordinator;  ///< the address of its socket
  int workers = 1;
  int threads = 1;
  std::uint64_t seed = 42;
  std::vector<std::string> extra;  ///< KEY=VALUE, as the user gave them
  std::string dir{};               ///< of the job, where workers leave their notes; empty: nowhere

  // Of a job on several hosts.
  std::string host{};  ///< the name of this one; empty: there are no others
  std::string secret_file{};
  std::string interface_name{};  ///< see JobPlan
  std::string ports{};           ///< see JobPlan
  std::string store{};           ///< see JobPlan
  bool trusted_network = false;  ///< see JobPlan
};

/// What a worker leaves in writing, see session/worker_note.h.
std::string note_file(const std::string& dir, std::uint64_t id);

/// This process's own.
std::vector<std::string> own_environment();

/// `inherited` with the user's additions, then PLIANT_JOB, PLIANT_WORKER, PLIANT_WORKERS, PLIANT_COORDINATOR,
/// PLIANT_SEED, PLIANT_THREADS and PLIANT_NOTE. OMP_NUM_THREADS and its like follow PLIANT_THREADS unless the user
/// set them. GLIBC_TUNABLES makes malloc keep freed memory for the next step, unless the user chose how malloc behaves.
/// On a host of several also PLIANT_HOST, PLIANT_SECRET_FILE and, where the user chose them, PLIANT_INTERFACE,
/// PLIANT_PORTS, PLIANT_STORE and PLIANT_NETWORK. On one host PLIANT_DECISIONS, the directory that decides which view
/// follows.
std::vector<std::string> environment_of(std::uint64_t id, const WorkerEnv& wanted,
                                        const std::vector<std::string>& inherited);

}  // namespace pliant::cli
