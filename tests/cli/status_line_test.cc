#include "apps/pliant/status_line.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "apps/pliant/command.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/status_file.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

Snapshot example() {
  wire::Progress progress{120, 7, 4, 2, 10, 4690, 7680, 12345.6, 0.43121, "accuracy 0.91"};
  return {"running", 4, 4, 42s, progress, 83.4};
}

TEST(StatusLine, HasAllFields) {
  EXPECT_EQ(render_line(example(), 200),
            "step 120/4690  epoch 3/10  12.3k samples/s  loss 0.4312  4 workers  0:42  1:23 left  accuracy 0.91");
}

TEST(StatusLine, DropsWholeFieldsWhereTheTerminalIsNarrow) {
  for (int columns = -1; columns < 120; ++columns) {
    auto line = render_line(example(), columns);
    EXPECT_LE(static_cast<int>(line.size()), std::max(columns, 0));
    EXPECT_EQ(render_line(example(), 200).substr(0, line.size()), line);
  }
  EXPECT_EQ(render_line(example(), 30), "step 120/4690  epoch 3/10");
}

TEST(StatusLine, LeavesOutWhatIsNotKnown) {
  Snapshot bare{"starting", 2, 1, 3s, std::nullopt, std::nullopt};
  EXPECT_EQ(render_line(bare, 80), "starting  1 of 2 workers  0:03");
  wire::Progress progress;
  progress.step = 5;
  progress.loss = std::nan("");
  EXPECT_EQ(render_line({"running", 1, 1, 3s, progress, std::nullopt}, 80), "step 5  1 worker  0:03");
  EXPECT_EQ(render_line({"stopping", 1, 1, 3s, progress, std::nullopt}, 80), "stopping  step 5  1 worker  0:03");
}

TEST(StatusLine, TextFromWorkersCannotMoveTheCursor) {
  auto now = example();
  now.progress->text = "a\033[2J\r\nb";
  auto line = render_line(now, 200);
  EXPECT_TRUE(std::none_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 32; }));
}

TEST(StatusLine, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(format_rate(0.54), "0.5");
  EXPECT_EQ(format_rate(856.4), "856");
  EXPECT_EQ(format_rate(9999), "9999");
  EXPECT_EQ(format_rate(12345), "12.3k");
  EXPECT_EQ(format_rate(4.56e6), "4.56M");
  EXPECT_EQ(format_rate(std::nan("")), "-");
  EXPECT_EQ(format_loss(2.3025851), "2.3026");
  EXPECT_EQ(format_loss(0), "0.0000");
  EXPECT_EQ(format_loss(1.5e-6), "1.500e-06");
  EXPECT_EQ(format_loss(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(format_span(42.9), "0:42");
  EXPECT_EQ(format_span(725), "12:05");
  EXPECT_EQ(format_span(3723), "1:02:03");
  EXPECT_EQ(format_span(std::nan("")), "0:00");
}

TEST(StatusLine, EpochsAreCountedFromOne) {
  wire::Progress progress;
  EXPECT_EQ(epoch_for_people(progress), 1u);
  progress.epochs = 3;
  EXPECT_EQ(epoch_for_people(progress), 1u);
  progress.epoch = 3;
  EXPECT_EQ(epoch_for_people(progress), 3u) << "the last one is over";
}

TEST(Pace, TellsTheTimeLeft) {
  Pace pace;
  wire::Progress progress;
  progress.steps = 100;
  progress.step = 10;
  pace.on_progress(10s, progress);
  EXPECT_FALSE(pace.seconds_left(10s));
  progress.step = 30;
  pace.on_progress(20s, progress);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(20s), 35);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(25s), 30) << "it counts down between reports";
  EXPECT_DOUBLE_EQ(*pace.seconds_left(99s), 0);
  progress.step = 5;  // the program began another loop
  pace.on_progress(30s, progress);
  EXPECT_FALSE(pace.seconds_left(30s));
  progress.step = 15;
  pace.on_progress(40s, progress);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(40s), 85);
  progress.step = 100;
  pace.on_progress(50s, progress);
  EXPECT_DOUBLE_EQ(*pace.seconds_left(51s), 0);
  progress.steps = 0;
  pace.on_progress(52s, progress);
  EXPECT_FALSE(pace.seconds_left(52s));
}

TEST(StatusFile, ComesBackAsItWas) {
  std::string dir = std::filesystem::temp_directory_path() / "pliant-status-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  EXPECT_FALSE(read_status(dir));
  auto now = example();
  now.progress->loss = std::nan("");
  now.progress->text = "\xff not UTF-8";
  now.at = 1.7e9;
  ASSERT_TRUE(write_atomically(dir + kStatusFile, status_text(now)).ok());
  auto seen = read_status(dir);
  ASSERT_TRUE(seen && seen->progress);
  EXPECT_EQ(seen->phase, "running");
  EXPECT_EQ(seen->at, 1.7e9);
  EXPECT_EQ(seen->progress->step, 120u);
  EXPECT_TRUE(std::isnan(seen->progress->loss));
  EXPECT_DOUBLE_EQ(*seen->seconds_left, 83.4);
  ASSERT_TRUE(write_atomically(dir + kStatusFile, "{\"phase\": 3").ok());
  EXPECT_FALSE(read_status(dir));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace pliant::cli
