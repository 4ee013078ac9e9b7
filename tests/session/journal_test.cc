// Checkpoints, resuming and records through the session: what a user gets with --checkpoint, --resume and --record.
#include "session/journal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "record/line.h"
#include "record/verify.h"
#include "session/workers.h"
#include "step/snapshot.h"

namespace pliant::session {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kSamples = 101;

struct Plan {
  int dies = -1;  ///< this worker vanishes in step `when`
  std::uint64_t when = 0;
  bool stop = false;     ///< all stop there
  bool batches = false;  ///< asks for another batch in the middle of every step
};

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("pliant-journal-" + std::to_string(random_u64()));
    fs::create_directories(dir_);
    setenv("PLIANT_RECORD", (dir_ / "records").c_str(), 1);
    setenv("PLIANT_CHECKPOINT", (dir_ / "checkpoints").c_str(), 1);
    setenv("PLIANT_CHECKPOINT_EVERY", "4", 1);
  }
  void TearDown() override {
    for (const char* name : {"PLIANT_RECORD", "PLIANT_CHECKPOINT", "PLIANT_CHECKPOINT_EVERY", "PLIANT_RESUME"})
      unsetenv(name);
    fs::remove_all(dir_);
  }

  /// Counts how often each sample is used.
  void train(int workers, std::uint64_t epochs, const Plan& plan = {}) {
    run_runtimes(workers, [&](std::unique_ptr<Runtime> runtime) {
      std::vector<float> counts(kSamples);
      runtime->replicas().add("counts", state_of(std::span<float>(counts)));
      runtime->set_batch({0, 16});
      runtime->attach_sampler(kSamples, true);
      auto area = runtime->region("area", kSamples * 4);
      runtime->start({.epochs = epochs});
      for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
        bool dies = static_cast<int>(runtime->worker()) == plan.dies && step->index() == plan.when;
        if (dies) return;
        if (plan.stop && step->index() == plan.when) return runtime->leave();
        auto lease = runtime->take_lease();
        auto ticket = submit_use(*runtime, area, lease);
        if (plan.batches) runtime->set_batch({0, 5 + 7 * step->index() % 20});
        runtime->close_step();
        const auto* sums = static_cast<const float*>(ticket->result());
        for (std::size_t i = 0; i < kSamples; ++i) counts[i] += sums[i];
        runtime->log("loss", 1.0);
        runtime->end_step();
      }
      for (auto count : counts) EXPECT_EQ(count, static_cast<float>(epochs));
      runtime->leave();
    });
  }

  void expect_verified() {
    auto verified = record::verify_records((dir_ / "records").string()).or_throw();
    EXPECT_TRUE(verified.ok) << verified.text();
    verified_ = verified;
  }

  /// The lines of a worker's file.
  std::vector<record::Line> lines_of(int worker) const {
    std::vector<record::Line> lines;
    std::ifstream file(dir_ / "records" / ("worker-" + std::to_string(worker) + ".jsonl"));
    for (std::string line; std::getline(file, line);) lines.push_back(record::decode_line(line).or_throw());
    return lines;
  }

  fs::path dir_;
  record::Verification verified_;
};

TEST_F(JournalTest, RecordsProveARunWithADeath) {
  for (int dies : {0, 1, 2})
    for (std::uint64_t when : {0, 1, 3, 6, 7}) {
      SCOPED_TRACE(testing::Message() << "worker " << dies << " in step " << when);
      fs::remove_all(dir_ / "records");
      train(3, 2, {.dies = dies, .when = when});
      expect_verified();
      EXPECT_EQ(verified_.epochs, 2U);
      EXPECT_EQ(verified_.samples, 2 * kSamples);
      EXPECT_EQ(verified_.outcome, record::Outcome::finished);
    }
}

TEST_F(JournalTest, ABatchThatIsAskedForInMidStepIsTheNextStepsAndLosesNoSample) {
  train(3, 3, {.batches = true});
  expect_verified();
  EXPECT_EQ(verified_.samples, 3 * kSamples);
  auto second = std::get<record::StepRecord>(lines_of(0)[1]);
  EXPECT_EQ(second.global_batch, 5U) << "what step 0 has asked for";
}

TEST_F(JournalTest, ASecondLoopGoesOnWithTheStateThatTheProgramHasMade) {
  run_workers(2, [](Runtime& runtime) {
    std::vector<float> weights(10);
    runtime.replicas().add("weights", state_of(std::span<float>(weights)));
    for (std::uint64_t steps : {4, 8}) {
      runtime.start({.steps = steps});
      for (auto step = runtime.begin_step(); step; step = runtime.begin_step()) {
        runtime.close_step();
        weights[3] += 1;
        runtime.end_step();
      }
      weights[3] = -7;
    }
  });
  expect_verified();
  EXPECT_EQ(verified_.steps, 8U);
}

TEST_F(JournalTest, WhatTheLoopsEndWasIsWrittenDown) {
  train(2, 1);
  EXPECT_EQ(std::get<record::EndRecord>(lines_of(1).back()).outcome, record::Outcome::finished);
  fs::remove_all(dir_ / "records");
  train(2, 1, {.when = 3, .stop = true});
  auto end = std::get<record::EndRecord>(lines_of(1).back());
  EXPECT_EQ(end.outcome, record::Outcome::quit);
  EXPECT_EQ(end.steps, 3U);
  expect_verified();
  EXPECT_EQ(verified_.outcome, record::Outcome::quit);
  fs::remove_all(dir_ / "records");
  train(2, 1, {.dies = 1, .when = 3});
  EXPECT_EQ(std::get<record::EndRecord>(lines_of(1).back()).outcome, record::Outcome::failed);
}

TEST_F(JournalTest, AssigningOverASessionEndsItInOrder) {
  {
    auto session = Session::join();
    auto steps = session.steps({.steps = 5});
    auto at = steps.begin();
    ++at;
    session = Session::join();  // the one before leaves its loop by itself: it has not failed
  }

  EXPECT_EQ(std::get<record::EndRecord>(lines_of(0).back()).outcome, record::Outcome::quit);
}

TEST_F(JournalTest, AJobResumesOnAnotherNumberOfWorkersWhereItWas) {
  setenv("PLIANT_CHECKPOINT_EVERY", "3", 1);
  train(2, 3, {.when = 10, .stop = true});  // all stop in step 10, without a word
  auto stopped = newest_checkpoint((dir_ / "checkpoints").string()).or_throw();
  EXPECT_GE(stopped.position.step, 3U);
  setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
  train(4, 3);
  expect_verified();
  EXPECT_EQ(verified_.epochs, 3U);
  EXPECT_EQ(verified_.lineages, 2U);
}

/// A program of two loops: the first is left by break, and what it has learned is made ten times as much before the
/// second begins. Returns how often the first loop's body ran. One worker may vanish between the loops.
int loop_twice(int workers, std::uint64_t steps, int vanishes = -1) {
  std::atomic<int> first_bodies = 0;
  run_runtimes(workers, [&](std::unique_ptr<Runtime> runtime) {
    Session session(std::move(runtime));
    std::vector<float> weights(16, 0.0F);
    session.share("weights", state_of(std::span<float>(weights)));
    for (auto step : session.steps({.steps = 100})) {
      if (step.index() == 6) break;
      ++first_bodies;
      weights[3] += 1;
    }
    if (static_cast<int>(session.worker()) == vanishes) return;
    EXPECT_EQ(session.average("between the loops", 1), 1);
    weights[3] *= 10;
    for ([[maybe_unused]] auto step : session.steps({.steps = steps})) weights[3] += 100;
    EXPECT_EQ(weights[3], static_cast<float>(6 * 10 + (steps - 6) * 100));
  });
  return first_bodies;
}

TEST_F(JournalTest, AJobResumesInTheLoopThatItWasIn) {
  for (auto [before, after] : {std::pair(2, 3), std::pair(3, 2), std::pair(1, 1), std::pair(1, 2)}) {
    SCOPED_TRACE(testing::Message() << before << " workers, then " << after);
    fs::remove_all(dir_ / "records");
    fs::remove_all(dir_ / "checkpoints");
    unsetenv("PLIANT_RESUME");
    EXPECT_EQ(loop_twice(before, 15), 6 * before);
    EXPECT_EQ(newest_checkpoint((dir_ / "checkpoints").string()).or_throw().position.loop, 2U);
    setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
    EXPECT_EQ(loop_twice(after, 20), 0) << "the job has done with the first loop";
    expect_verified();
    EXPECT_EQ(verified_.lineages, 2U);
    EXPECT_EQ(verified_.steps, 20U);
  }
}

TEST_F(JournalTest, SomebodyMayBeLostBeforeTheLoopOfACheckpointIsReached) {
  EXPECT_EQ(loop_twice(3, 15), 18);
  setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
  for (int vanishes : {1, 2}) EXPECT_EQ(loop_twice(3, 20, vanishes), 0);
}

TEST_F(JournalTest, ACheckpointOfTheFirstLoopIsResumedThere) {
  setenv("PLIANT_CHECKPOINT_EVERY", "5", 1);
  EXPECT_EQ(loop_twice(2, 7), 12);
  fs::remove_all(dir_ / "checkpoints" / "step-000000000007");
  ASSERT_EQ(newest_checkpoint((dir_ / "checkpoints").string()).or_throw().position.loop, 1U);
  setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
  EXPECT_EQ(loop_twice(2, 20), 2) << "one step of the first loop";
  expect_verified();
}

TEST_F(JournalTest, AProgramThatDoesNotReachTheLoopOfItsCheckpointHasFailed) {
  EXPECT_EQ(loop_twice(2, 15), 12);
  setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
  fs::remove_all(dir_ / "records");
  run_runtimes(2, [&](std::unique_ptr<Runtime> runtime) {
    Session session(std::move(runtime));
    std::vector<float> weights(16, 0.0F);
    session.share("weights", state_of(std::span<float>(weights)));
    for (auto step : session.steps({.steps = 100})) ADD_FAILURE() << step.index();
  });
  EXPECT_EQ(std::get<record::EndRecord>(lines_of(0).back()).outcome, record::Outcome::failed);
}

TEST_F(JournalTest, WhoCannotResumeSaysSoAndDoesNotBeginAnew) {
  setenv("PLIANT_RESUME", (dir_ / "nowhere").c_str(), 1);
  run_runtimes(2, [](std::unique_ptr<Runtime> runtime) { EXPECT_THROW(runtime->start({.steps = 3}), Failure); });
}

/// A journal that writes into memory.
struct Written {
  explicit Written(std::uint64_t worker)
      : journal({}, worker, Platform::current(), std::make_unique<record::MemorySink>(log)) {}
  record::MemoryLog log;
  Journal journal;
};

record::StepRecord step_of(std::uint64_t worker, std::uint64_t step) {
  record::StepRecord record;
  record.worker = worker;
  record.step = step;
  record.size = 1;
  record.lease = {1, 2, {worker}};
  record.took = {{step, step + 1}};
  return record;
}

TEST(Journal, UnwrittenLinesTravelWithTheStateUntilSomebodyWritesThem) {
  Written first(0), second(1), third(2);
  first.journal.note(step_of(0, 7));
  step::JobSnapshot snapshot;
  snapshot.state.assignment = step::LeaseAssignment::even({1, 1, 1, 1, {{0, 1, ""}}});
  snapshot.unwritten = first.journal.unwritten();
  snapshot.begins_loop = true;
  auto given = step::decode_snapshot(encode(snapshot)).or_throw();
  ASSERT_EQ(given.unwritten.size(), 1U);
  EXPECT_TRUE(given.begins_loop);
  EXPECT_EQ(given.unwritten[0].took, step_of(0, 7).took);
  second.journal.adopt(given.unwritten);
  EXPECT_TRUE(second.log.lines.empty()) << "the step is not stable yet";
  third.journal.adopt(second.journal.unwritten());
  third.journal.note(step_of(2, 8));
  third.journal.stable(8, 0.5);
  ASSERT_EQ(third.log.lines.size(), 2U);
  auto written = std::get<record::StepRecord>(third.log.lines[0]);
  EXPECT_EQ(written.worker, 0U);
  EXPECT_EQ(written.by, 2U);
  EXPECT_EQ(written.loss, 0.5);
  EXPECT_FALSE(std::get<record::StepRecord>(third.log.lines[1]).by);
}

TEST(Journal, StepsThatAWorkerRecordedItselfAreNotAdopted) {
  Written one(1);
  one.journal.note(step_of(1, 7));
  one.journal.adopt({step_of(0, 7)});
  one.journal.adopt({step_of(0, 9)});
  one.journal.adopt({step_of(2, 9)});  // the view ended while it was entered, and another member gave the state
  one.journal.end(record::Outcome::left, 0, 10);
  one.journal.end(record::Outcome::failed, 0, 10);
  ASSERT_EQ(one.log.lines.size(), 3U);
  EXPECT_EQ(std::get<record::StepRecord>(one.log.lines[0]).worker, 1U);
  EXPECT_EQ(std::get<record::StepRecord>(one.log.lines[1]).worker, 0U);
  EXPECT_EQ(std::get<record::EndRecord>(one.log.lines[2]).outcome, record::Outcome::left);
}

TEST(Journal, AJobThatBeganAgainHasItsCheckpointsFromThereOn) {
  auto dir = fs::temp_directory_path() / ("pliant-due-" + std::to_string(random_u64()));
  Journal journal({.checkpoint_dir = dir.string(), .every_steps = 10}, 0, Platform::current(), nullptr);
  EXPECT_FALSE(journal.due(9));
  EXPECT_TRUE(journal.due(30));
  Position position;
  position.step = 30;
  journal.checkpoint(position, {});
  journal.close(30);
  EXPECT_FALSE(journal.due(39));
  EXPECT_TRUE(journal.due(12)) << "the state is that of another's checkpoint, after 11 steps";
  fs::remove_all(dir);
}

TEST(Lineage, IsNeverUsedTwice) {
  auto dir = fs::temp_directory_path() / ("pliant-lineage-" + std::to_string(random_u64()));
  fs::create_directories(dir);
  EXPECT_EQ(checkpoints_on_disk().begin_lineage(dir.string(), 0).or_throw(), 1U);
  EXPECT_EQ(checkpoints_on_disk().begin_lineage(dir.string(), 0).or_throw(), 2U);
  EXPECT_EQ(checkpoints_on_disk().begin_lineage(dir.string(), 7).or_throw(), 8U);
  fs::remove_all(dir);
}

TEST(Every, StepsOrTime) {
  JournalOptions options;
  EXPECT_TRUE(parse_every("500", options).ok());
  EXPECT_EQ(options.every_steps, 500U);
  EXPECT_TRUE(parse_every("5m", options).ok());
  EXPECT_EQ(options.every_steps, 0U);
  EXPECT_EQ(options.every_time, std::chrono::minutes(5));
  for (const char* wrong : {"", "s", "0", "5x", "-1", "1.5s", "99999999999999999999"})
    EXPECT_FALSE(parse_every(wrong, options).ok()) << wrong;
}

}  // namespace
}  // namespace pliant::session
