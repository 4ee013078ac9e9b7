#include "session/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/hash.h"
#include "wire/messages.h"

namespace pliant::session {
namespace {

using Found = Result<std::optional<Launch>>;

/// Slurm counts steps of its own from here on: a batch script is one, and the shell of salloc may be one.
constexpr std::uint64_t kFirstOwnStep = 0xfffffff0;
constexpr std::size_t kLongestName = 64;

Result<std::uint64_t> number_in(const Lookup& lookup, const char* name) {
  auto text = lookup(name);
  if (!text)
    return Error{Code::invalid, fmt::format("{} is not set, although this process was started with others", name)};
  std::uint64_t value = 0;
  const auto* end = text->data() + text->size();
  auto [stop, problem] = std::from_chars(text->data(), end, value);
  if (problem != std::errc() || stop != end || value > UINT32_MAX)
    return Error{Code::invalid, fmt::format("{}: '{}' is not a number", name, *text)};
  return value;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && text.front() != '.' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string_view::npos;
}

/// With rank and size from variables of these names. `job` is asked only if there are several processes.
template <class Job>
Found launch_of(const Lookup& lookup, const char* launcher, const char* rank_name, const char* size_name,
                const Job& job) {
  auto rank = number_in(lookup, rank_name);
  if (!rank.ok()) return rank.error();
  auto size = number_in(lookup, size_name);
  if (!size.ok()) return size.error();
  if (rank.value() >= size.value())
    return Error{Code::invalid,
                 fmt::format("{} is {}, but {} is {}", rank_name, rank.value(), size_name, size.value())};
  if (size.value() == 1) return std::optional<Launch>();
  if (size.value() > wire::kMaxMembers)
    return Error{Code::invalid,
                 fmt::format("{} is {}: a job has {} workers at most", size_name, size.value(), wire::kMaxMembers)};
  Result<std::string> name = job();
  if (!name.ok()) return name.error();
  return std::optional(Launch{launcher, name.value(), static_cast<int>(rank.value()), static_cast<int>(size.value())});
}

/// Open MPI 4 numbers its jobs by a hash of host and process; where its mpirun listens makes that unique, and is the
/// same for all. From 5 on there is no such place, but the number is a name with host and process in it.
Found open_mpi(const Lookup& lookup) {
  return launch_of(lookup, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", [&]() -> Result<std::string> {
    auto space = lookup("PMIX_NAMESPACE");
    if (!space) return Error{Code::invalid, "PMIX_NAMESPACE is not set, so mpirun's jobs cannot be told apart"};
    auto where = lookup("OMPI_MCA_orte_hnp_uri").value_or("");
    return fmt::format("mpirun-{:016x}", combine(hash_name(*space), hash_name(where)));
  });
}

/// MPICH, Intel MPI and others with the same interface.
Found pmi(const Lookup& lookup) {
  return launch_of(lookup, "mpiexec", "PMI_RANK", "PMI_SIZE", [&]() -> Result<std::string> {
    auto job = lookup("PLIANT_JOB");
    if (!job)
      return Error{Code::invalid, "this mpiexec gives its jobs no names: set PLIANT_JOB to one that no other job has"};
    if (!is_name(*job))
      return Error{Code::invalid,
                   fmt::format("PLIANT_JOB: '{}' is not a name of letters, digits, '.', '_' and '-'", *job)};
    return "mpiexec-" + *job;
  });
}

Found slurm(const Lookup& lookup) {
  // The size of the step; SLURM_NTASKS may be the allocation's.
  const char* size = lookup("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  return launch_of(lookup, "srun", "SLURM_PROCID", size, [&]() -> Result<std::string> {
    auto job = number_in(lookup, "SLURM_JOB_ID");
    if (!job.ok()) return job.error();
    auto step = number_in(lookup, "SLURM_STEP_ID");
    if (!step.ok()) return step.error();
    // Clusters may share a home directory, and each counts its jobs from 1.
    auto cluster = lookup("SLURM_CLUSTER_NAME").value_or("cluster");
    if (!is_name(cluster)) cluster = fmt::format("{:016x}", hash_name(cluster));
    return fmt::format("srun-{}-{}.{}", cluster, job.value(), step.value());
  });
}

/// A task that srun started. What runs in a batch script itself, or in the shell of salloc, is none: it has Slurm's
/// variables too, but no step, or one of Slurm's own.
Result<bool> is_slurm_task(const Lookup& lookup) {
  if (!lookup("SLURM_STEP_ID") || !lookup("SLURM_PROCID")) return false;
  auto step = number_in(lookup, "SLURM_STEP_ID");
  if (!step.ok()) return step.error();
  return step.value() < kFirstOwnStep;
}

}  // namespace

Found launch_from(const Lookup& lookup) {
  if (auto wish = lookup("PLIANT_LAUNCH")) {
    if (*wish == "none") return std::optional<Launch>();
    return Error{Code::invalid, fmt::format("PLIANT_LAUNCH: '{}' is not \"none\"", *wish)};
  }
  if (lookup("OMPI_COMM_WORLD_RANK")) return open_mpi(lookup);
  auto task = is_slurm_task(lookup);
  if (!task.ok()) return task.error();
  // srun can speak this interface as well; only mpiexec counts a host's processes this way.
  if (lookup("PMI_RANK") && (!task.value() || lookup("MPI_LOCALNRANKS"))) return pmi(lookup);
  return task.value() ? slurm(lookup) : std::optional<Launch>();
}

}  // namespace pliant::session
