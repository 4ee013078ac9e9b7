// Checkpoints, resuming and records through the session: what a user gets with --checkpoint, --resume and --record.
#include "session/journal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "session/workers.h"

namespace pliant::session {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kSamples = 101;

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

  /// Counts how often each sample is used. Worker `dies` vanishes in step `when`; with `stop` all stop there.
  void train(int workers, std::uint64_t epochs, int dies = -1, std::uint64_t when = 0, bool stop = false) {
    run_cores(workers, [&](std::unique_ptr<Core> core) {
      std::vector<float> counts(kSamples);
      core->replicas().add("counts", state_of(std::span<float>(counts)));
      core->set_batch({0, 16});
      core->attach_sampler(kSamples, true);
      auto area = core->area("area", kSamples * 4);
      core->start({.epochs = epochs});
      for (auto step = core->begin_step(); step; step = core->begin_step()) {
        if (static_cast<int>(core->worker()) == dies && step->index() == when) return;
        if (stop && step->index() == when) return core->leave();
        auto lease = core->take_lease();
        auto* values = reinterpret_cast<float*>(area->region->input());
        std::fill(values, values + kSamples, 0.0F);
        for (auto sample : lease) values[sample] = 1;
        auto ticket = core->submit({.name = "area", .count = kSamples, .area = area, .with_step = true});
        core->close_step();
        const auto* sums = static_cast<const float*>(ticket->result());
        for (std::size_t i = 0; i < kSamples; ++i) counts[i] += sums[i];
        core->log("loss", 1.0);
        core->end_step();
      }
      for (auto count : counts) EXPECT_EQ(count, static_cast<float>(epochs));
      core->leave();
    });
  }

  void expect_verified() {
    auto verified = verify_records((dir_ / "records").string()).or_throw();
    EXPECT_TRUE(verified.ok) << verified.text();
    verified_ = verified;
  }

  fs::path dir_;
  Verification verified_;
};

TEST_F(JournalTest, RecordsProveARunWithADeath) {
  train(3, 2, 1, 3);
  expect_verified();
  EXPECT_EQ(verified_.epochs, 2U);
  EXPECT_EQ(verified_.samples, 2 * kSamples);
}

TEST_F(JournalTest, AJobResumesOnAnotherNumberOfWorkersWhereItWas) {
  setenv("PLIANT_CHECKPOINT_EVERY", "3", 1);
  train(2, 3, -1, 10, true);  // all stop in step 10, without a word
  auto stopped = newest_checkpoint((dir_ / "checkpoints").string()).or_throw();
  EXPECT_GE(stopped.position.step, 3U);
  setenv("PLIANT_RESUME", (dir_ / "checkpoints").c_str(), 1);
  train(4, 3);
  expect_verified();
  EXPECT_EQ(verified_.epochs, 3U);
  EXPECT_EQ(verified_.lineages, 2U);
}

TEST_F(JournalTest, WhoCannotResumeSaysSoAndDoesNotBeginAnew) {
  setenv("PLIANT_RESUME", (dir_ / "nowhere").c_str(), 1);
  run_cores(2, [](std::unique_ptr<Core> core) { EXPECT_THROW(core->start({.steps = 3}), Failure); });
}

TEST(Lineage, IsNeverUsedTwice) {
  auto dir = fs::temp_directory_path() / ("pliant-lineage-" + std::to_string(random_u64()));
  fs::create_directories(dir);
  EXPECT_EQ(begin_lineage(dir.string(), 0).or_throw(), 1U);
  EXPECT_EQ(begin_lineage(dir.string(), 0).or_throw(), 2U);
  EXPECT_EQ(begin_lineage(dir.string(), 7).or_throw(), 8U);
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
