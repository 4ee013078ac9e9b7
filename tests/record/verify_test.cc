// What records prove: good ones are accepted, and each kind of fault that is planted in good ones is found and named.
#include "record/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "record/line.h"
#include "record/records.h"

namespace pliant::record {
namespace {

/// A new seed every run, or PLIANT_TEST_SEED to repeat a failure.
std::uint64_t test_seed() {
  auto fixed = env("PLIANT_TEST_SEED");
  return fixed ? std::stoull(*fixed) : random_u64();
}
#define TRACE_SEED(seed) SCOPED_TRACE("repeat with PLIANT_TEST_SEED=" + std::to_string(seed))

Verification verify(const Records& records, const Frame& frame = {}, const VerifyOptions& options = {}) {
  return record::verify(logs_of(records, frame), options);
}

std::string all_of(const Verification& seen) { return seen.text(); }

bool has_fault(const Verification& seen, const std::string& part) {
  return std::ranges::any_of(seen.faults, [&](const auto& fault) { return fault.find(part) != std::string::npos; });
}

void expect_fault(const Records& records, const std::string& part, const Frame& frame = {}) {
  auto seen = verify(records, frame);
  EXPECT_FALSE(seen.ok);
  EXPECT_TRUE(has_fault(seen, part)) << "expected: " << part << "\n" << all_of(seen);
}

/// Fifteen steps per epoch, five epochs, nobody comes or goes: 4 workers, view 1.
Records calm() {
  FakeJob job(1, 150, 10, 4, 0);
  job.run_epochs(5);
  return job.records();
}

TEST(Verify, AGoodJobIsProved) {
  auto seen = verify(calm());
  EXPECT_TRUE(seen.ok) << all_of(seen);
  EXPECT_EQ(seen.text(),
            "OK: 75 steps, 5 epochs, 750 samples each used once, 4 workers, 1 view, 1 lineage, finished\n");
}

TEST(Verify, FilesAndMemoryProveTheSame) {
  FakeJob job(4, 90, 8, 4, 0.4);
  job.run_epochs(3);
  Folder folder;
  write_records(job.records(), folder.path());
  EXPECT_EQ(verify_records(folder.path()).or_throw().text(), verify(job.records()).text());
}

TEST(Verify, JobsWhoseWorkersComeGoAndDieAreProved) {
  auto seed = test_seed();
  for (int round = 0; round < 150; ++round, ++seed) {
    TRACE_SEED(seed);
    FakeJob job(seed, 1 + seed % 300, 1 + seed / 7 % 40, 1 + static_cast<int>(seed % 5), 0.4);
    job.run_epochs(1 + seed % 4);
    auto seen = verify(job.records());
    ASSERT_TRUE(seen.ok) << all_of(seen);
    EXPECT_EQ(seen.steps, job.step());
    EXPECT_EQ(seen.epochs, job.ledger().epoch());
    EXPECT_EQ(seen.samples, job.ledger().epoch() * job.ledger().samples());
    EXPECT_EQ(seen.views, job.views());
    EXPECT_EQ(seen.workers, job.records().size());
  }
}

TEST(Verify, TheLastEpochMayBeUnfinished) {
  FakeJob job(3, 100, 10, 3, 0);
  job.run_steps(25);
  auto seen = verify(job.records());
  EXPECT_TRUE(seen.ok) << all_of(seen);
  EXPECT_EQ(seen.epochs, 2U);
  EXPECT_EQ(seen.samples, 250U);
}

TEST(Verify, RestartsMakeWhatCameLaterVoid) {
  auto seed = test_seed();
  for (int round = 0; round < 50; ++round, ++seed) {
    TRACE_SEED(seed);
    FakeJob job(seed, 200, 16, 4, 0.3);
    auto kept = job.checkpoint();
    for (int life = 0; life < 4; ++life) {
      job.run_steps(5 + seed % 30);
      if (job.chance(0.7)) kept = job.checkpoint();
      job.run_steps(1 + seed % 20);
      job.restart(kept, 1 + static_cast<int>(seed % 4));
    }
    job.run_epochs(job.ledger().epoch() + 2);
    auto seen = verify(job.records());
    ASSERT_TRUE(seen.ok) << all_of(seen);
    EXPECT_EQ(seen.steps, job.step());
    EXPECT_EQ(seen.lineages, 5U);
    EXPECT_EQ(seen.samples, job.ledger().epoch() * 200);
  }
}

TEST(Verify, FaultsInVoidStepsDoNotCount) {
  FakeJob job(5, 200, 10, 3, 0);
  job.run_steps(10);
  auto kept = job.checkpoint();
  job.run_steps(10);
  job.restart(kept, 3);
  job.run_steps(20);
  auto records = job.records();
  lines_of(records, 15)[1]->digest.after = 1;
  EXPECT_TRUE(verify(records).ok);
  lines_of(records, 9)[1]->digest.after = 1;
  EXPECT_FALSE(verify(records).ok);
}

TEST(Verify, AJobWithoutSamplerIsProvedToo) {
  auto records = calm();
  for (auto& [worker, lines] : records)
    for (auto& line : lines) {
      line.dataset = line.epoch = 0;
      line.samples.clear();
      line.took.clear();
    }
  EXPECT_EQ(verify(records).text(), "OK: 75 steps, 4 workers, 1 view, 1 lineage, finished\n");
}

TEST(Verify, ClocksMayJump) {
  auto records = calm();
  lines_of(records, 30)[0]->t -= 1e6;
  lines_of(records, 40)[2]->t += 1e9;
  EXPECT_TRUE(verify(records).ok);
}

TEST(Verify, WhoIsKilledTakesTheLinesOfItsLastTwoStepsAlong) {
  auto records = calm();
  records[0].resize(73);
  records[1].resize(74);
  auto seen = verify(records);
  EXPECT_TRUE(seen.ok) << all_of(seen);
  EXPECT_EQ(seen.notes,
            (std::vector<std::string>{"worker 0 was a member in the last step and did not say how it ended",
                                      "worker 1 was a member in the last step and did not say how it ended"}));
  auto logs = logs_of(records);
  logs.push_back(
      {"agent.jsonl", {EventRecord{1, "ended", 0, "by signal 9"}, EventRecord{1, "ended", 1, "by signal 9"}}});
  EXPECT_EQ(record::verify(logs).notes, std::vector<std::string>{});
}

TEST(Verify, ALineThatAnotherWorkerWroteIsItsWorkersOwn) {
  // Worker 0 alone makes steps 0 to 9 and is killed before its last line is written; worker 1 has the state and the
  // line.
  FakeJob job(1, 100, 10, 1, 0);
  job.run_steps(20);
  Records records;
  for (auto line : job.records().at(0)) {
    bool later = line.step >= 10;
    auto writer = line.step >= 9 ? 1U : 0U;
    if (line.step == 9) line.by = 1;
    if (later) {
      line.worker = 1;
      line.view = line.lease.view = 2;
      line.lease.workers = {1};
      line.samples[0].worker = 1;
    }
    records[writer].push_back(line);
  }
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
  auto copy = records[1][0];
  copy.by.reset();
  copy.loss = 7;  // comes with the next step's summary, and is not everybody's
  records[0].push_back(copy);
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
  records[0].back().took = {{90, 99}};
  auto seen = verify(records);
  EXPECT_TRUE(has_fault(seen,
                        "step 9: the line of worker 0 that worker 1 wrote (worker-1.jsonl:1) is not the one that "
                        "worker 0 wrote (worker-0.jsonl:10)"))
      << all_of(seen);
  records[0].back() = copy;
  records[0].back().digest.after = 5;
  EXPECT_TRUE(has_fault(verify(records), "step 9: digest differs"));
  records[0].pop_back();
  records[1].erase(records[1].begin());
  EXPECT_TRUE(has_fault(verify(records), "step 9 is recorded by nobody; the next one is step 10"));
}

/// Four workers; worker 3 dies in step 20, which three of them close in view 2, in which it is salvaged by worker 0.
Records with_salvage() {
  auto records = calm();
  for (auto& [worker, lines] : records)
    for (auto& line : lines) {
      if (line.step < 20) continue;
      line.view = 2;
      line.view_hash = 22;
      line.size = 3;
      if (line.step == 20) {
        line.samples[3].by = 0;
        continue;
      }
      line.lease = {2, 22, {0, 1, 2}};
      line.samples[2].ranges = {{line.samples[2].ranges[0].begin, line.samples[3].ranges[0].end}};
      line.samples.pop_back();
      if (worker == 2) line.took = line.samples[2].ranges;
    }
  records[3].resize(20);
  return records;
}

TEST(Verify, SalvagedSamplesOfADeadWorkerCount) {
  auto records = with_salvage();
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
  // It had entered view 1 with that very step: nobody has a line of it, nor of that view before.
  for (auto& [worker, lines] : records)
    for (auto& line : lines)
      if (line.step < 20) {
        line.view = line.lease.view = 0;
        line.lease.workers = {0, 1, 2};
        line.size = 3;
        line.samples[2].ranges = {{line.samples[2].ranges[0].begin, line.samples[3].ranges[0].end}};
        line.samples.pop_back();
        if (worker == 2) line.took = line.samples[2].ranges;
      }
  records.erase(3);
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
}

TEST(Verify, BetweenTwoLoopsTheProgramMayChangeTheState) {
  auto records = calm();
  for (auto& [worker, lines] : records) {
    for (auto& line : lines)
      if (line.step >= 30) line.digest.before ^= 1, line.digest.after ^= 1;
    lines[30].begins_loop = true;
  }
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
}

TEST(Verify, RecordsOfVersion1AreHeldToWhatTheyHave) {
  auto seed = test_seed();
  for (int round = 0; round < 50; ++round, ++seed) {
    TRACE_SEED(seed);
    FakeJob job(seed, 120, 9, 4, 0.3);
    job.run_epochs(2);
    auto records = job.records();
    for (auto& [worker, lines] : records)
      for (auto& line : lines) {
        line.version = 1;
        line.lease = {};
        line.took.clear();
        line.digest.before = line.ledger.before = line.ledger.after = 0;
        for (auto& part : line.samples) part.by.reset();
      }
    auto seen = verify(records, {.end = std::nullopt}, {.partial = true});
    ASSERT_TRUE(seen.ok) << all_of(seen);
    seen = verify(records, {.end = std::nullopt});
    EXPECT_EQ(seen.faults, std::vector<std::string>{fmt::format(
                               "the records end at step {}; they are of version 1 (Pliant 0.5), which does not say how "
                               "a job ended",
                               job.step() - 1)});
  }
}

// ---- planted faults ----

TEST(Planted, AGap) {
  auto records = calm();
  for (auto& [worker, lines] : records) std::erase_if(lines, [](const auto& line) { return line.step / 2 == 5; });
  auto seen = verify(records);
  EXPECT_EQ(seen.faults.front(), "steps 10 to 11 are recorded by nobody; the next one is step 12");
  EXPECT_TRUE(has_fault(seen, "epoch 0: 20 of 150 positions were never used: [100, 120)")) << all_of(seen);
  EXPECT_EQ(seen.faults.size(), 2U) << all_of(seen);
}

TEST(Planted, AMissingBeginning) {
  auto records = calm();
  for (auto& [worker, lines] : records) lines.erase(lines.begin());
  expect_fault(records, "step 0 is recorded by nobody; the next one is step 1");
}

TEST(Planted, AHoleInOneWorkersSteps) {
  auto records = calm();
  records[2].erase(records[2].begin() + 7, records[2].begin() + 9);
  auto seen = verify(records);
  EXPECT_EQ(seen.faults,
            std::vector<std::string>{"step 9: worker 2 did not record steps 7 to 8, although it was a member"});
}

TEST(Planted, AHoleAcrossAViewChange) {
  auto records = calm();
  for (auto& [worker, lines] : records)
    for (auto& line : lines)
      if (line.step >= 8) line.view = line.lease.view = 2;
  EXPECT_TRUE(verify(records).ok);
  records[2].erase(records[2].begin() + 7);
  expect_fault(records, "step 8: worker 2 did not record step 7, although it was a member");
  records[2].erase(records[2].begin() + 7);
  expect_fault(records, "step 9: worker 2 did not record steps 7 to 8, although it was a member");
}

TEST(Planted, AStepRecordedAgain) {
  auto records = calm();
  auto again = records[1][20];
  records[1].insert(records[1].begin() + 21, again);
  expect_fault(records, "worker-1.jsonl:22: step 20 is recorded again");
  records[1][21].digest.after = 99;
  expect_fault(records, "worker-1.jsonl:22: step 20 is recorded again");
  records[1][21].step = 3;
  expect_fault(records, "worker-1.jsonl:22: step 3 of lineage 0 after step 20 of lineage 0");
}

TEST(Planted, OneDigestDiffers) {
  auto records = calm();
  lines_of(records, 20)[2]->digest.after = 0xabc;
  auto seen = verify(records);
  ASSERT_EQ(seen.faults.size(), 1U) << all_of(seen);
  EXPECT_TRUE(
      seen.faults[0].starts_with("step 20: digest differs: worker 2 (worker-2.jsonl:21) has 0000000000000abc, "
                                 "workers 0, 1, 3 have "))
      << seen.faults[0];
}

TEST(Planted, DifferentContent) {
  const std::pair<const char*, std::function<void(StepRecord&)>> cases[] = {
      {"view differs: worker 1", [](auto& line) { ++line.view; }},
      {"view_hash differs: worker 1", [](auto& line) { ++line.view_hash; }},
      {"size differs: worker 1", [](auto& line) { ++line.size; }},
      {"epoch differs: worker 1", [](auto& line) { ++line.epoch; }},
      {"dataset differs: worker 1", [](auto& line) { ++line.dataset; }},
      {"global_batch differs: worker 1", [](auto& line) { ++line.global_batch; }},
      {"samples differs: worker 1", [](auto& line) { line.samples.pop_back(); }},
      {"samples differs: worker 1", [](auto& line) { line.samples[0].by = 1; }},
      {"delivered differs: worker 1", [](auto& line) { line.delivered = true; }},
      {"lease differs: worker 1", [](auto& line) { ++line.lease.hash; }},
      {"digest_before differs: worker 1", [](auto& line) { ++line.digest.before; }},
      {"digest differs: worker 1", [](auto& line) { ++line.digest.after; }},
      {"ledger_before differs: worker 1", [](auto& line) { ++line.ledger.before; }},
      {"ledger_after differs: worker 1", [](auto& line) { ++line.ledger.after; }},
      {"samples differs: worker 1", [](auto& line) { std::swap(line.samples[0].ranges, line.samples[1].ranges); }},
  };
  for (const auto& [part, spoil] : cases) {
    auto records = calm();
    spoil(*lines_of(records, 20)[1]);
    auto seen = verify(records);
    ASSERT_EQ(seen.faults.size(), 1U) << all_of(seen);
    EXPECT_TRUE(has_fault(seen, std::string("step 20: ") + part)) << all_of(seen);
  }
}

/// On all lines of a step; workers then have taken what it counts.
void spoil_step(Records& records, std::uint64_t step, const std::function<void(StepRecord&)>& spoil) {
  for (auto* line : lines_of(records, step)) {
    spoil(*line);
    for (const auto& part : line->samples)
      if (part.worker == line->worker) line->took = part.ranges;
  }
}

TEST(Planted, ASampleUsedTwice) {
  auto records = calm();
  spoil_step(records, 20, [](auto& line) { line.samples[3].ranges = {{4, 6}}; });  // epoch 1 began with step 15
  auto seen = verify(records);
  EXPECT_TRUE(has_fault(seen, "epoch 1: positions [4, 6) are used in step 15 and again in step 20")) << all_of(seen);
  EXPECT_TRUE(has_fault(seen, "epoch 1: 2 of 150 positions were never used: [58, 60)")) << all_of(seen);
  EXPECT_EQ(seen.faults.size(), 2U) << all_of(seen);
}

TEST(Planted, ASampleUsedTwiceInTheUnfinishedEpoch) {
  FakeJob job(1, 150, 10, 4, 0);
  job.run_steps(20);
  auto records = job.records();
  spoil_step(records, 19, [](auto& line) { line.samples[0].ranges = {{8, 11}}; });
  auto seen = verify(records);
  EXPECT_TRUE(has_fault(seen, "epoch 1: positions [8, 10) are used in step 15 and again in step 19")) << all_of(seen);
  EXPECT_TRUE(has_fault(seen, "epoch 1: positions [10, 11) are used in step 16 and again in step 19"));
  EXPECT_EQ(seen.faults.size(), 2U) << all_of(seen);
}

TEST(Planted, ASampleUsedTwiceInAnEpochOfManySteps) {
  FakeJob job(1, 70000, 1, 1, 0);
  job.run_epochs(1);
  auto records = job.records();
  EXPECT_TRUE(verify(records).ok);
  records[0][69999].samples[0].ranges = {{3, 4}};
  expect_fault(records, "epoch 0: positions [3, 4) are used in one of the steps 0 to 65535 and again in step 69999");
}

TEST(Planted, ASampleUsedByTwoWorkersOfAStep) {
  auto records = calm();
  spoil_step(records, 3, [](auto& line) { line.samples[1].ranges = {{32, 36}}; });
  expect_fault(records, "step 3: positions [32, 33) are used by worker 0 and by worker 1");
}

TEST(Planted, ASampleNeverUsed) {
  auto records = calm();
  spoil_step(records, 5, [](auto& line) { --line.samples[3].ranges[0].end; });
  auto seen = verify(records);
  EXPECT_EQ(seen.faults, std::vector<std::string>{"epoch 0: 1 of 150 positions were never used: [59, 60)"});
  EXPECT_EQ(seen.epochs, 4U);
}

TEST(Planted, SamplesOfAnotherEpoch) {
  auto records = calm();
  spoil_step(records, 31, [](auto& line) { line.epoch = 1; });
  expect_fault(records, "step 31 is of epoch 1 although epoch 2 has begun");
  records = calm();
  for (std::uint64_t step = 30; step < 45; ++step) spoil_step(records, step, [](auto& line) { line.epoch = 7; });
  expect_fault(records, "step 30 is of epoch 7, but no step was of epoch 2");
}

TEST(Planted, OneContributionOfAnotherEpoch) {
  Folder folder;
  auto records = calm();
  write_records(records, folder.path());
  std::ofstream file(folder.file("worker-1.jsonl"));
  for (const auto& line : records[1]) {
    std::string text;
    append_line(line, text);
    if (line.step == 4) text.replace(text.find(R"("worker":2,"epoch":0)"), 20, R"("worker":2,"epoch":1)");
    file << text;
  }
  file.close();
  auto seen = verify_records(folder.path()).or_throw();
  EXPECT_EQ(seen.faults,
            std::vector<std::string>{"step 4: samples of epoch 1 in a step of epoch 0 (worker-1.jsonl:5)"});
}

TEST(Planted, RanksAndSizes) {
  auto records = calm();
  lines_of(records, 20)[1]->rank = 4;
  expect_fault(records, "step 20: worker 1 has rank 4 in view 1 of 4 members");
  lines_of(records, 20)[1]->rank = 2;
  expect_fault(records, "step 20: worker 1 has rank 2 of view 1, which is worker 2's");
  records = calm();
  spoil_step(records, 20, [](auto& line) { line.size = 5; });
  expect_fault(records, "step 20: view 1 has 5 members, before it had 4");
  for (auto& [worker, lines] : records)
    for (auto& line : lines) line.size = 0;
  expect_fault(records, "step 0: view 1 has no members");
}

TEST(Planted, Views) {
  auto records = calm();
  for (auto& [worker, lines] : records)
    for (auto& line : lines) line.view = line.step < 30 ? 5 : 4;
  expect_fault(records, "step 30: view 4 after view 5");
  records = calm();
  spoil_step(records, 20, [](auto& line) { line.view_hash = 1; });
  expect_fault(records, "step 20: view 1 has the hash 0000000000000001, before it was");
}

TEST(Planted, AContributorThatIsNoMember) {
  auto records = calm();
  spoil_step(records, 20, [](auto& line) { line.samples[2].worker = 9; });
  expect_fault(records, "step 20: worker 9 contributed but was dealt no samples (view 1)");
  expect_fault(records, "step 20: worker 2 took [56, 58), but nothing of it is counted (worker-2.jsonl:21)");
  spoil_step(records, 20, [](auto& line) { line.lease.workers[2] = 9; });
  expect_fault(records, "step 20: view 1 (");
  expect_fault(records, "step 20: worker 9 contributed but is not a member of view 1");
}

TEST(Planted, SamplesThatNobodySalvaged) {
  auto records = with_salvage();
  spoil_step(records, 20, [](auto& line) { line.samples[3].by.reset(); });
  expect_fault(records, "step 20: worker 3 contributed but is not a member of view 2");
  spoil_step(records, 20, [](auto& line) { line.delivered = true; });  // everybody had used them already
  EXPECT_TRUE(verify(records).ok) << all_of(verify(records));
  records = with_salvage();
  spoil_step(records, 20, [](auto& line) { line.samples[3].by = 3; });
  expect_fault(records, "step 20: worker 3 salvaged the samples of worker 3 but is not a member of view 2");
  spoil_step(records, 20, [](auto& line) { line.samples[1].by = 0; });
  expect_fault(records, "step 20: worker 1 is a member of view 2, but its samples count as salvaged by worker 0");
  records = with_salvage();
  spoil_step(records, 21, [](auto& line) { line.samples[2].worker = 3; });
  expect_fault(records, "step 21: worker 3 contributed but was dealt no samples (view 2)");
}

TEST(Planted, SamplesDealtAmongAnOldView) {
  auto records = with_salvage();
  spoil_step(records, 22, [](auto& line) { line.lease.view = 1; });
  expect_fault(records,
               "step 22: samples were dealt among view 1, but the step was closed in view 2 and the one before in "
               "view 2");
  records = with_salvage();
  spoil_step(records, 22, [](auto& line) { line.lease.hash = 23; });
  expect_fault(records,
               "step 22: view 2 (0000000000000017) has workers 0 1 2, before it had workers 0 1 2 (0000000000000016)");
}

TEST(Planted, AWorkerThatTookOtherSamplesThanTheStepCounts) {
  auto records = calm();
  lines_of(records, 20)[1]->took = {{52, 53}};
  auto seen = verify(records);
  EXPECT_EQ(seen.faults, std::vector<std::string>{
                             "step 20: worker 1 took [52, 53), but [53, 56) of it is counted (worker-1.jsonl:21)"});
}

TEST(Planted, AStateThatWasReset) {
  auto records = calm();
  for (auto& [worker, lines] : records)
    for (auto& line : lines)
      if (line.step >= 30) line.digest.before = mix64(line.step), line.digest.after = mix64(line.step + 1);
  auto seen = verify(records);
  ASSERT_EQ(seen.faults.size(), 1U) << all_of(seen);
  EXPECT_TRUE(seen.faults[0].starts_with("step 30 begins with the state")) << all_of(seen);
  EXPECT_TRUE(seen.faults[0].ends_with("the state was reset or changed between the two")) << all_of(seen);
}

TEST(Planted, APositionThatWasReset) {
  auto records = calm();
  spoil_step(records, 30, [](auto& line) { line.ledger.before = 1; });
  auto seen = verify(records);
  ASSERT_EQ(seen.faults.size(), 1U) << all_of(seen);
  EXPECT_TRUE(seen.faults[0].starts_with("step 30 begins with the ledger 0000000000000001, but step 29 ended with"));
}

TEST(Planted, ARestartFromAnotherState) {
  FakeJob job(5, 200, 10, 3, 0);
  job.run_steps(10);
  auto kept = job.checkpoint();
  job.run_steps(10);
  kept.digest ^= 1;
  job.restart(kept, 3);
  job.run_steps(20);
  expect_fault(job.records(), "step 10 of lineage 1 begins with the state");
}

/// All were lost after the last checkpoint, and the job was stopped, or was done, before it made another step.
TEST(Verify, ALineageMayEndWhereItBegan) {
  FakeJob job(5, 200, 10, 3, 0);
  job.run_steps(10);
  for (std::uint64_t steps : {10, 8, 11}) {
    auto logs = logs_of(job.records(), {.end = std::nullopt});
    logs.push_back({"worker-9", {BeginRecord{1, 9, 1, steps, "here"}, EndRecord{1, 9, 1, steps, Outcome::stopped}}});
    auto seen = verify(logs);
    EXPECT_EQ(seen.ok, steps <= 10) << all_of(seen);
    EXPECT_EQ(seen.steps, std::min<std::uint64_t>(steps, 10));
  }
}

TEST(Planted, ALineageThatNobodyBegan) {
  auto records = calm();
  for (auto& line : records[1])
    if (line.step >= 20) line.lineage = 1;
  expect_fault(records, "lineage 1 has steps from 20 on, but nobody recorded that it began from a checkpoint",
               {.begins = false});
}

TEST(Planted, AWorkersFileThatIsCutShort) {
  auto records = calm();
  records[1].resize(50);
  EXPECT_EQ(verify(records).faults,
            std::vector<std::string>{"the records of worker 1 end at step 49, although it was a member until step 74"});
  records[1].clear();
  EXPECT_EQ(verify(records).faults,
            std::vector<std::string>{"worker 1 recorded nothing, although it was a member until step 74"});
  records = with_salvage();
  records[3].resize(16);  // it died in step 20, which nobody else closed with it
  expect_fault(records, "the records of worker 3 end at step 15, although it was a member until step 19");
}

TEST(Planted, RecordsWithoutAnEnd) {
  auto seen = verify(calm(), {.end = std::nullopt});
  EXPECT_EQ(seen.text(),
            "the records end at step 74; the job did not say that it finished or was stopped\n"
            "FAULTY: 75 steps, 5 epochs, 750 samples, 4 workers, 1 view, 1 lineage\n");
  seen = verify(calm(), {.end = std::nullopt}, {.partial = true});
  EXPECT_TRUE(seen.ok);
  EXPECT_EQ(seen.text(),
            "note: the records end at step 74; the job did not say that it finished or was stopped\n"
            "OK so far: 75 steps, 5 epochs, 750 samples each used once, 4 workers, 1 view, 1 lineage\n");
  expect_fault(calm(), "the records end at step 74; the job failed there", {.end = Outcome::failed});
}

TEST(Planted, AllFilesCutShort) {
  auto logs = logs_of(calm());
  for (auto& log : logs) log.lines.erase(log.lines.begin() + 40, log.lines.end());
  auto seen = record::verify(logs);
  EXPECT_EQ(seen.faults, std::vector<std::string>{
                             "the records end at step 39; the job did not say that it finished or was stopped"});
  for (auto& log : logs) log.lines.emplace_back(EndRecord{1, 0, 0, 75, Outcome::finished});
  EXPECT_FALSE(record::verify(logs).ok);
}

TEST(Planted, AnEndThatComesTooLate) {
  auto records = calm();
  auto logs = logs_of(records);
  for (auto& log : logs) log.lines.erase(log.lines.begin() + 70, log.lines.begin() + 75);
  auto seen = record::verify(logs);
  EXPECT_TRUE(has_fault(seen, "worker 0 says that the job finished after 75 steps, but the records end at step 69"))
      << all_of(seen);
}

TEST(Verify, AJobMayEndInOtherWays) {
  auto seen = verify(calm(), {.end = Outcome::stopped});
  EXPECT_TRUE(seen.ok);
  EXPECT_EQ(seen.outcome, Outcome::stopped);
  seen = verify(calm(), {.end = Outcome::quit});
  EXPECT_TRUE(seen.ok);
  EXPECT_TRUE(seen.text().ends_with("1 lineage, quit\n")) << seen.text();
  seen = verify(calm(), {.end = Outcome::left});
  EXPECT_FALSE(seen.ok) << "others went on, and what became of them is not recorded";
}

/// Workers that were killed after a stop, before they could say so, and what those who ran them say.
Verification verify_killed(const std::vector<std::pair<const char*, const char*>>& over) {
  auto logs = logs_of(calm(), {.end = std::nullopt});
  for (const auto& [name, outcome] : over) {
    MemoryLog log{name, {}};
    for (std::uint64_t worker = 0; worker < 4; ++worker)
      log.lines.emplace_back(EventRecord{1, "ended", worker, "killed by signal 9"});
    log.lines.emplace_back(EventRecord{1, "over", {}, outcome});
    logs.push_back(log);
  }
  return record::verify(logs);
}

TEST(Verify, WhoeverRanTheJobMaySayThatItWasStopped) {
  using Over = std::vector<std::pair<const char*, const char*>>;
  for (const auto& over : {Over{{"agent.jsonl", "stopped"}}, Over{{"coordinator.jsonl", "stopped"}},
                           Over{{"agent.jsonl", "stopped"}, {"coordinator.jsonl", "stopped"}}}) {
    auto seen = verify_killed(over);
    EXPECT_EQ(seen.text(),
              "note: the job was stopped at step 74, where none of its workers had the time to say so\n"
              "OK: 75 steps, 5 epochs, 750 samples each used once, 4 workers, 1 view, 1 lineage, stopped\n");
    EXPECT_EQ(seen.outcome, Outcome::stopped);
  }
}

TEST(Planted, AJobThatWasNotStoppedByTheWordOfAllWhoRanIt) {
  using Over = std::vector<std::pair<const char*, const char*>>;
  for (const auto& over :
       {Over{{"agent.jsonl", "failed"}}, Over{{"coordinator.jsonl", "failed"}},
        Over{{"agent.jsonl", "stopped"}, {"coordinator.jsonl", "failed"}}, Over{{"agent.jsonl", "finished"}}, Over{}}) {
    auto seen = verify_killed(over);
    EXPECT_EQ(seen.faults, std::vector<std::string>{
                               "the records end at step 74; the job did not say that it finished or was stopped"});
    EXPECT_EQ(seen.outcome, std::nullopt);
  }
}

/// It is about processes, and says nothing of the job.
TEST(Planted, AnEventOfAWorkerThatSaysThatItIsOver) {
  auto logs = logs_of(calm(), {.end = std::nullopt});
  logs.push_back({"agent.jsonl", {EventRecord{1, "over", 0, "stopped"}}});
  EXPECT_FALSE(record::verify(logs).ok);
}

TEST(Verify, WhatWorkersSayOfTheEndComesFirst) {
  auto logs = logs_of(calm());
  logs.push_back({"agent.jsonl", {EventRecord{1, "over", {}, "stopped"}}});
  auto seen = record::verify(logs);
  EXPECT_EQ(seen.outcome, Outcome::finished);
  EXPECT_EQ(seen.notes, std::vector<std::string>{});
}

/// The workers were killed between two loops of their program.
TEST(Verify, AJobThatFailedAfterALoopIsNotFinished) {
  auto logs = logs_of(calm());
  logs.push_back({"agent.jsonl", {EventRecord{1, "over", {}, "failed"}}});
  auto seen = record::verify(logs);
  EXPECT_EQ(seen.outcome, Outcome::failed);
  EXPECT_EQ(seen.notes,
            std::vector<std::string>{"the loop that ended at step 74 was finished, but whoever ran the job "
                                     "says that it failed: its programs failed, or were killed, after that loop"});
  EXPECT_TRUE(seen.ok) << "what is recorded is right";
  logs.push_back({"agent-2.jsonl", {EventRecord{2, "over", {}, "finished"}}});
  EXPECT_EQ(record::verify(logs).outcome, Outcome::finished) << "another run went on with it";
}

TEST(Planted, RangesBeyondTheDataSet) {
  auto records = calm();
  spoil_step(records, 14, [](auto& line) { line.samples[3].ranges = {{148, 151}}; });
  expect_fault(records, "step 14: positions [148, 151) of worker 3 are beyond the data set of 150");
  records = calm();
  spoil_step(records, 14, [](auto& line) { line.dataset = 0; });
  expect_fault(records, "are beyond the data set of 0");
}

TEST(Planted, ADataSetThatChanges) {
  auto records = calm();
  spoil_step(records, 20, [](auto& line) { line.dataset = 160; });
  expect_fault(records, "step 20: the data set has 160 samples, before it had 150 in epoch 1");
}

TEST(Planted, MoreSamplesThanTheBatch) {
  auto records = calm();
  spoil_step(records, 14, [](auto& line) { line.global_batch = 9; });
  expect_fault(records, "step 14: 10 samples in a global batch of 9");
}

TEST(Planted, ALineageThatBeginsInTheFuture) {
  FakeJob job(5, 200, 10, 3, 0);
  job.run_steps(10);
  auto kept = job.checkpoint();
  job.restart(kept, 3);
  job.run_steps(20);
  auto records = job.records();
  for (auto& [worker, lines] : records)
    std::erase_if(lines, [](const auto& line) { return line.lineage == 1 && line.step < 14; });
  expect_fault(records, "steps 10 to 13 are recorded by nobody; the next one is step 14 of lineage 1");
}

TEST(Planted, ManyFaultsAreCounted) {
  auto records = calm();
  for (auto& line : records[2]) line.digest.after = 1;
  for (auto& line : records[1]) line.global_batch = 1;
  auto seen = verify(records);
  EXPECT_EQ(seen.faults.size(), 101U);
  EXPECT_EQ(seen.faults.back(), "and 50 more");
}

/// Whatever is done to good records by chance, verify survives it; most of it is found.
TEST(Planted, AnythingAtRandom) {
  auto seed = test_seed();
  for (int round = 0; round < 200; ++round, ++seed) {
    TRACE_SEED(seed);
    std::mt19937_64 random(seed);
    FakeJob job(seed, 60, 7, 3, 0.3);
    job.run_epochs(2);
    Folder folder;
    write_records(job.records(), folder.path());
    std::string text;
    for (const auto& line : job.records().begin()->second) append_line(line, text);
    for (int change = 0; change < 5; ++change) text[random() % text.size()] = "0123456789,:[]{}\"\n-ea"[random() % 21];
    std::ofstream(folder.file("worker-0.jsonl"), std::ios::binary) << text;
    EXPECT_TRUE(verify_records(folder.path()).ok());
  }
}

}  // namespace
}  // namespace pliant::record
