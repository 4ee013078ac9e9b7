// Files that are not what verify expects.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "record/records.h"

namespace pliant::record {
namespace {

class StrangeFiles : public testing::Test {
 protected:
  void SetUp() override {
    FakeJob job(1, 100, 10, 2, 0);
    job.run_epochs(2);
    write_records(job.records(), folder_.path());
  }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(folder_.file(name), std::ios::app | std::ios::binary) << text;
  }
  Verification verify() { return verify_records(folder_.path()).or_throw(); }
  void expect_faults(const std::vector<std::string>& faults) {
    auto seen = verify();
    EXPECT_EQ(seen.faults, faults);
    EXPECT_EQ(seen.steps, 20U) << "the good lines count all the same";
  }
  Folder folder_;
};

TEST_F(StrangeFiles, ATornLastLineIsOnlyCounted) {
  append("worker-0.jsonl", R"({"kind":"step","t":17000)");
  append("worker-7.jsonl", "{");
  auto seen = verify();
  EXPECT_TRUE(seen.ok);
  EXPECT_EQ(seen.torn_lines, 2U);
  EXPECT_TRUE(seen.text().ends_with("1 lineage, finished (2 torn lines at the end of a file)\n")) << seen.text();
}

TEST_F(StrangeFiles, ATornLineInTheMiddleIsAFault) {
  append("worker-0.jsonl", "{\"kind\":\"st\n");
  expect_faults({"worker-0.jsonl:22: not JSON from byte 12 on"});
}

TEST_F(StrangeFiles, EventsAreLeftAlone) {
  Recorder::open(folder_.path(), "agent").or_throw()->write(EventRecord{1, "killed", 1, "by the test"});
  EXPECT_TRUE(verify().ok);
}

TEST_F(StrangeFiles, LinesThatAreNoRecords) {
  append("notes.jsonl", "hello\n\n{\"kind\":\"poem\"}\n[1,2]\n");
  expect_faults({"notes.jsonl:1: not JSON from byte 1 on", "notes.jsonl:2: not JSON from byte 1 on",
                 "notes.jsonl:3: not a record", "notes.jsonl:4: not a record"});
}

TEST_F(StrangeFiles, HugeLines) {
  append("worker-1.jsonl", std::string(10'000'000, 'x') + "\n" + std::string(10'000'000, '[') + "\n{}\n");
  append("zeros.jsonl", std::string(3'000'000, '\0'));
  expect_faults({"worker-1.jsonl:22: too long for a record", "worker-1.jsonl:23: too long for a record",
                 "worker-1.jsonl:24: not a record", "zeros.jsonl:1: too long for a record"});
}

TEST_F(StrangeFiles, AnotherWorkersLinesInAFile) {
  std::ifstream other(folder_.file("worker-1.jsonl"));
  std::string line;
  std::getline(other, line);
  append("worker-0.jsonl", line + "\n");
  expect_faults({"worker-0.jsonl:22: worker 1 in the file of worker 0"});
}

TEST_F(StrangeFiles, ACopyOfAFile) {
  std::filesystem::copy(folder_.file("worker-1.jsonl"), folder_.file("copy.jsonl"));
  auto seen = verify();
  ASSERT_EQ(seen.faults.size(), 20U) << seen.text();
  EXPECT_EQ(seen.faults[3], "step 3: worker 1 has another line: worker-1.jsonl:4");
}

TEST_F(StrangeFiles, ThingsThatAreNoFiles) {
  std::filesystem::create_directory(folder_.file("a.jsonl"));
  ASSERT_EQ(mkfifo(folder_.file("b.jsonl").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder_.file("worker-0.jsonl"), folder_.file("c\n.jsonl"));
  auto seen = verify();
  std::ranges::sort(seen.faults);
  EXPECT_EQ(seen.faults, (std::vector<std::string>{"a.jsonl: not a file", "b.jsonl: not a file",
                                                   "c .jsonl: a link, which is not followed"}));
}

TEST_F(StrangeFiles, OtherFilesAreNotLookedAt) {
  append("notes.txt", "hello\n");
  append("worker-0.jsonl.bak", "hello\n");
  EXPECT_TRUE(verify().ok);
}

TEST_F(StrangeFiles, AbsurdNumbers) {
  FakeJob job(1, 100, 10, 2, 0);
  job.run_steps(1);
  auto records = job.records();
  auto line = records[0][0];
  line.worker = 77;
  line.step = line.epoch = line.view = line.dataset = line.global_batch = std::uint64_t{1} << 53;
  line.rank = 2147483646;
  line.size = 2147483647;
  line.samples = {{77, {{0, line.dataset}}}};
  write_records({{77, {line}}}, folder_.path(), {.end = std::nullopt});
  auto seen = verify();
  EXPECT_EQ(seen.faults.front(),
            "steps 20 to 9007199254740991 are recorded by nobody; the next one is step "
            "9007199254740992");
  EXPECT_GE(seen.faults.size(), 2U) << seen.text();
}

TEST(VerifyFolder, NothingToCheckIsAnError) {
  Folder folder;
  EXPECT_EQ(verify_records(folder.file("missing")).error().code, Code::not_found);
  EXPECT_EQ(verify_records(folder.path()).error().code, Code::not_found);
  std::ofstream(folder.file("worker-0.jsonl")) << "{\"kind\"";
  EXPECT_EQ(verify_records(folder.path()).error().code, Code::not_found);
  EXPECT_FALSE(verify_records(folder.file("worker-0.jsonl")).ok());
}

TEST(VerifyFolder, MoreFilesThanCanBeOpen) {
  FakeJob job(1, 1000, 10, 2, 0);
  job.run_epochs(2);
  auto records = job.records();
  Records many;  // each worker leaves after one step
  for (auto& [worker, lines] : records)
    for (auto& line : lines) {
      line.view = line.lease.view = line.step + 1;
      line.worker += 2 * line.step;
      for (auto& member : line.lease.workers) member += 2 * line.step;
      for (auto& part : line.samples) part.worker += 2 * line.step;
      many[line.worker].push_back(line);
    }
  ASSERT_GT(many.size(), 300U);
  Folder folder;
  write_records(many, folder.path());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit few{64, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  auto seen = verify_records(folder.path()).or_throw();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_TRUE(seen.ok) << seen.text();
  EXPECT_EQ(seen.workers, many.size());
}

}  // namespace
}  // namespace pliant::record
