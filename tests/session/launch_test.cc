// What launchers put into the environment, as seen with Slurm 22.05, Open MPI 4.1 and MPICH 4.0, and what is made of
// it.
#include "session/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace pliant::session {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<Launch>> launch_in(const Variables& variables) {
  return launch_from([&](const char* name) -> std::optional<std::string> {
    auto at = variables.find(name);
    return at == variables.end() || at->second.empty() ? std::nullopt : std::optional(at->second);
  });
}

/// `usual` with some of them changed; empty: not set.
Variables with(Variables usual, const Variables& changes) {
  for (const auto& [name, value] : changes) usual[name] = value;
  return usual;
}

const Variables kBatch = {{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"},  {"SLURM_NTASKS", "4"},
                          {"SLURM_NODEID", "0"},  {"SLURM_LOCALID", "0"}, {"SLURM_CLUSTER_NAME", "big"}};
const Variables kTask = with(kBatch, {{"SLURM_PROCID", "2"}, {"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}});
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"PMIX_NAMESPACE", "2114912257"},
                            {"PMIX_RANK", "1"},
                            {"OMPI_MCA_orte_hnp_uri", "2114912256.0;tcp://10.0.0.2:59185"}};
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PLIANT_JOB", "mine"}};

Launch launched(const Variables& variables) {
  auto launch = launch_in(variables).or_throw();
  if (!launch) throw Failure(Code::not_found, "a job of one");
  return *launch;
}

TEST(Launch, ATaskOfSrunKnowsItsStep) {
  EXPECT_EQ(launched(kTask), (Launch{"srun", "srun-big-17.3", 2, 4}));
  EXPECT_EQ(launched(with(kTask, {{"SLURM_CLUSTER_NAME", ""}})).job, "srun-cluster-17.3");
  EXPECT_NE(launched(with(kTask, {{"SLURM_STEP_ID", "4"}})).job, launched(kTask).job);
  EXPECT_NE(launched(with(kTask, {{"SLURM_JOB_ID", "18"}})).job, launched(kTask).job);
}

TEST(Launch, AStepMayBeSmallerThanItsAllocation) {
  EXPECT_EQ(launched(with(kTask, {{"SLURM_NTASKS", "8"}})).size, 4);
  EXPECT_EQ(launched(with(kTask, {{"SLURM_STEP_NUM_TASKS", ""}})).size, 4);
  EXPECT_FALSE(launch_in(with(kTask, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).or_throw().has_value());
}

TEST(Launch, WhatOpenMpiStartsHasANameOfItsOwn) {
  auto launch = launched(kOpenMpi);
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 3);
  EXPECT_EQ(launch.job.find_first_not_of("mpirun-0123456789abcdef"), std::string::npos) << launch.job;
  EXPECT_EQ(launched(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}})).job, launch.job);
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"})
    EXPECT_NE(launched(with(kOpenMpi, {{name, "another"}})).job, launch.job) << name;
  EXPECT_NE(launched(with(kOpenMpi, {{"OMPI_MCA_orte_hnp_uri", ""}, {"PMIX_NAMESPACE", "prterun-a-71@1"}})).job,
            launch.job);
}

TEST(Launch, WhatMpichStartsIsNamedByItsUser) {
  EXPECT_EQ(launched(kMpich), (Launch{"mpiexec", "mpiexec-mine", 1, 2}));
}

TEST(Launch, TheInnermostLauncherCounts) {
  EXPECT_EQ(launched(with(kTask, kOpenMpi)).launcher, "mpirun");
  EXPECT_EQ(launched(with(kBatch, kOpenMpi)).launcher, "mpirun");
  EXPECT_EQ(launched(with(kTask, kMpich)).launcher, "mpiexec");
  EXPECT_EQ(launched(with(kBatch, kMpich)).launcher, "mpiexec");
  // srun --mpi=pmi2
  EXPECT_EQ(launched(with(kTask, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "17.3"}})).launcher, "srun");
}

TEST(Launch, WhoWasStartedAloneIsAJobOfOne) {
  const Variables alone[] = {
      {},
      kBatch,                                          // a batch script, or salloc's shell
      with(kTask, {{"SLURM_STEP_ID", "4294967290"}}),  // salloc's shell on a node: an interactive step
      with(kTask, {{"SLURM_STEP_ID", "4294967291"}}),  // a batch script that is a step
      with(kTask, {{"SLURM_PROCID", ""}}),             // no task
      with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}),
      with(kMpich, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PLIANT_JOB", ""}}),
      {{"PLIANT_JOB", "mine"}},
      with(kTask, {{"PLIANT_LAUNCH", "none"}}),
      with(kOpenMpi, {{"PLIANT_LAUNCH", "none"}}),
      with(kMpich, {{"PLIANT_LAUNCH", "none"}}),
  };
  for (const auto& variables : alone) EXPECT_FALSE(launch_in(variables).or_throw().has_value());
}

TEST(Launch, AnEnvironmentThatMakesNoSenseIsAnError) {
  const struct {
    Variables variables;
    const char* says;
  } kCases[] = {
      {with(kTask, {{"SLURM_PROCID", "4"}}), "SLURM_PROCID is 4, but SLURM_STEP_NUM_TASKS is 4"},
      {with(kTask, {{"SLURM_PROCID", "two"}}), "SLURM_PROCID: 'two' is not a number"},
      {with(kTask, {{"SLURM_PROCID", "-1"}}), "SLURM_PROCID: '-1' is not a number"},
      {with(kTask, {{"SLURM_PROCID", "2 "}}), "SLURM_PROCID: '2 ' is not a number"},
      {with(kTask, {{"SLURM_STEP_ID", "batch"}}), "SLURM_STEP_ID: 'batch' is not a number"},
      {with(kTask, {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_NTASKS", ""}}), "SLURM_NTASKS is not set"},
      {with(kTask, {{"SLURM_STEP_NUM_TASKS", "0"}}), "SLURM_PROCID is 2, but SLURM_STEP_NUM_TASKS is 0"},
      {with(kTask, {{"SLURM_STEP_NUM_TASKS", "513"}}), "a job has 512 workers at most"},
      {with(kTask, {{"SLURM_JOB_ID", ""}}), "SLURM_JOB_ID is not set"},
      {with(kTask, {{"SLURM_JOB_ID", "../x"}}), "SLURM_JOB_ID: '../x' is not a number"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}}), "OMPI_COMM_WORLD_RANK is 1, but OMPI_COMM_WORLD_SIZE is 1"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE is not set"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "99999999999999999999"}}), "is not a number"},
      {with(kOpenMpi, {{"PMIX_NAMESPACE", ""}}), "PMIX_NAMESPACE is not set"},
      {with(kMpich, {{"PLIANT_JOB", ""}}), "set PLIANT_JOB to one that no other job has"},
      {with(kMpich, {{"PLIANT_JOB", "a/b"}}), "PLIANT_JOB: 'a/b' is not a name"},
      {with(kMpich, {{"PLIANT_JOB", ".."}}), "PLIANT_JOB: '..' is not a name"},
      {with(kMpich, {{"PLIANT_JOB", std::string(65, 'a')}}), "is not a name"},
      {with(kMpich, {{"PMI_RANK", "2"}}), "PMI_RANK is 2, but PMI_SIZE is 2"},
      {with(kTask, {{"PLIANT_LAUNCH", "slurm"}}), "PLIANT_LAUNCH: 'slurm' is not \"none\""},
  };
  for (const auto& one : kCases) {
    auto launch = launch_in(one.variables);
    ASSERT_FALSE(launch.ok()) << one.says;
    EXPECT_EQ(launch.error().code, Code::invalid);
    EXPECT_NE(launch.error().message.find(one.says), std::string::npos) << launch.error().message;
    EXPECT_EQ(launch.error().message.find('\n'), std::string::npos);
  }
}

TEST(Launch, AClusterOfAnyNameMakesAFileName) {
  auto odd = launched(with(kTask, {{"SLURM_CLUSTER_NAME", "../a b"}}));
  EXPECT_EQ(odd.job.find('/'), std::string::npos) << odd.job;
  EXPECT_NE(odd.job, launched(with(kTask, {{"SLURM_CLUSTER_NAME", "../a c"}})).job);
}

}  // namespace
}  // namespace pliant::session
