#include "apps/pliant/worker_env.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apps/pliant/run.h"

namespace pliant::cli {
namespace {

using Words = std::vector<std::string>;

bool has(const Words& list, const std::string& entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

TEST(WorkerEnv, TheUsersThreadsStay) {
  WorkerEnv wanted{"job", "@c", 4, 2, 42, {"OMP_NUM_THREADS=8"}};
  auto list = environment_of(3, wanted, {"HOME=/h", "MKL_NUM_THREADS=5"});
  for (const char* entry : {"HOME=/h", "PLIANT_WORKER=3", "PLIANT_WORKERS=4", "PLIANT_THREADS=2", "OMP_NUM_THREADS=8",
                            "MKL_NUM_THREADS=5", "OPENBLAS_NUM_THREADS=2", "PLIANT_COORDINATOR=@c", "PLIANT_SEED=42"})
    EXPECT_TRUE(has(list, entry)) << entry;
}

TEST(WorkerEnv, EachWorkerHasAFileForHowItEnded) {
  WorkerEnv wanted{"job", "@c", 4, 2, 42, {}, "/jobs/job"};
  EXPECT_TRUE(has(environment_of(3, wanted, {}), "PLIANT_NOTE=/jobs/job/rank-3.note"));
  EXPECT_TRUE(has(environment_of(3, wanted, {}), "PLIANT_DECISIONS=/jobs/job"));
}

TEST(WorkerEnv, OursWinOverInheritedOnes) {
  auto list =
      environment_of(0, {"inner", "@c", 1, 1, 42, {"PLIANT_JOB=forged"}}, {"PLIANT_JOB=outer", "PLIANT_WORKER=7"});
  EXPECT_TRUE(has(list, "PLIANT_JOB=inner"));
  EXPECT_TRUE(has(list, "PLIANT_WORKER=0"));
  EXPECT_FALSE(has(list, "PLIANT_JOB=outer"));
}

TEST(WorkerEnv, MallocKeepsMemoryUnlessTheUserChose) {
  auto tuned = [](const Words& inherited) {
    auto list = environment_of(0, {"job", "@c", 1, 1, 42, {}}, inherited);
    return std::any_of(list.begin(), list.end(),
                       [](const auto& entry) { return entry.starts_with("GLIBC_TUNABLES=glibc.malloc.mmap"); });
  };
  EXPECT_TRUE(tuned({"HOME=/h"}));
  EXPECT_FALSE(tuned({"MALLOC_ARENA_MAX=2"}));
  EXPECT_FALSE(tuned({"LD_PRELOAD=libjemalloc.so"}));
  EXPECT_FALSE(tuned({"GLIBC_TUNABLES="}));
}

TEST(CutAtProgram, WhereTheProgramBegins) {
  struct Case {
    Words words, flags, program;
  };
  for (const auto& [words, flags, program] : std::vector<Case>{
           {{}, {}, {}},
           {{"ps", "--json"}, {"ps", "--json"}, {}},
           {{"run", "a", "-np", "2"}, {"run"}, {"a", "-np", "2"}},
           {{"run", "-np", "2", "a"}, {"run", "-n", "2"}, {"a"}},
           {{"run", "-n2", "--name=x", "a", "--name"}, {"run", "-n2", "--name=x"}, {"a", "--name"}},
           {{"run", "--seed", "--", "a"}, {"run", "--seed", "--"}, {"a"}},
           {{"run", "-x", "A=1", "--", "-odd", "--"}, {"run", "-x", "A=1"}, {"-odd", "--"}},
           {{"run", "-h", "a"}, {"run", "-h"}, {"a"}},
           {{"run", "-n"}, {"run", "-n"}, {}},
           {{"run", "--"}, {"run"}, {}},
           {{"run", "-", "a"}, {"run"}, {"-", "a"}},
       }) {
    auto line = cut_at_program(words);
    EXPECT_EQ(line.flags, flags);
    EXPECT_EQ(line.program, program);
  }
}

}  // namespace
}  // namespace pliant::cli
