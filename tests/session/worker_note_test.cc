// What a worker leaves in writing: with real processes that are killed.
#include "session/worker_note.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "collective/team.h"
#include "record/records.h"

namespace pliant::session {
namespace {

class WorkerNoteTest : public ::testing::Test {
 protected:
  std::string file() const { return folder_.path() + "/rank-0.note"; }
  WorkerNote read() const { return read_worker_note(file()); }

  record::Folder folder_;
};

TEST_F(WorkerNoteTest, WhatAWorkerWroteIsThereWhenItIsKilled) {
  auto child = collective::spawn([&] {
    NoteWriter writer(file());
    for (std::uint64_t view = 1; view <= 1000; ++view) writer.set_view(view).or_throw();
    raise(SIGKILL);
  });
  EXPECT_EQ(collective::ended(child), 137);
  EXPECT_EQ(read(), (WorkerNote{Outcome::running, 1000}));
}

TEST_F(WorkerNoteTest, AKillLeavesNoHalfOfANote) {
  for (int round = 0; round < 20; ++round) {
    auto child = collective::spawn([&] {
      NoteWriter writer(file());
      // Their lengths differ, and so do all of their digits.
      for (;;) {
        writer.set_view(7).or_throw();
        writer.set_view(UINT64_MAX).or_throw();
      }
    });
    while (read().view.epoch == 0) sched_yield();
    kill(child, SIGKILL);
    EXPECT_EQ(collective::ended(child), 137);
    auto view = read().view.epoch;
    EXPECT_TRUE(view == 7 || view == UINT64_MAX) << view;
    std::ofstream(file(), std::ios::trunc).flush();
  }
}

TEST_F(WorkerNoteTest, ViewAndOutcomeStandBesideEachOther) {
  NoteWriter writer(file());
  EXPECT_EQ(read(), WorkerNote{}) << "nothing is written yet";
  for (int i = kOutcomes - 1; i >= 0; --i) {
    auto outcome = static_cast<Outcome>(i);
    writer.set_outcome(outcome).or_throw();
    writer.set_view(static_cast<std::uint64_t>(i)).or_throw();
    EXPECT_EQ(read(), (WorkerNote{outcome, static_cast<std::uint64_t>(i)}));
  }
}

TEST_F(WorkerNoteTest, SaysWhetherAnotherLoopMayFollow) {
  NoteWriter writer(file());
  writer.set_outcome(Outcome::finished).or_throw();
  EXPECT_FALSE(read().closed);
  EXPECT_EQ(read().last_word(false), Outcome::running);
  EXPECT_EQ(read().last_word(true), Outcome::finished);
  writer.close(Outcome::finished).or_throw();
  EXPECT_TRUE(read().closed);
  EXPECT_EQ(read().last_word(false), Outcome::finished);
  writer.close(Outcome::stopped).or_throw();
  EXPECT_EQ(read(), (WorkerNote{Outcome::stopped, 0, true}));
}

TEST_F(WorkerNoteTest, AnotherProcessBeginsAnew) {
  NoteWriter(file()).set_view(12).or_throw();
  NoteWriter(file()).set_outcome(Outcome::left).or_throw();
  EXPECT_EQ(read(), (WorkerNote{Outcome::left, 0}));
}

TEST_F(WorkerNoteTest, WhatMakesNoSenseSaysNothing) {
  EXPECT_EQ(read(), WorkerNote{});
  for (const char* text :
       {"", "finished\n", "view", "view x outcome left", "view -1 outcome", "view 1 outcome sleeping",
        "view 99999999999999999999999 outcome left", "epoch 1 outcome left"}) {
    std::ofstream(file(), std::ios::trunc) << text;
    EXPECT_EQ(read(), WorkerNote{}) << text;
  }
}

TEST_F(WorkerNoteTest, WithoutAPlaceNothingIsWritten) {
  EXPECT_TRUE(NoteWriter("").set_view(1).ok());
  auto failed = NoteWriter(folder_.path() + "/nowhere/note").set_view(1);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("nowhere/note"), std::string::npos);
}

}  // namespace
}  // namespace pliant::session
