#include "policy/board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "policy/scripted.h"

namespace pliant::policy {
namespace {

using namespace std::chrono_literals;

/// Remembers what it was called for, and adds up steps.
class Diary final : public Policy {
 public:
  Action before_train(const StepReport&) override { return note("T"); }
  Action before_epoch(const StepReport&) override { return note("E"); }
  Action before_step(const StepReport&) override { return note("S"); }
  Action after_step(const StepReport& seen) override {
    sum_ += seen.step;
    return note("s");
  }
  Action after_epoch(const StepReport&) override { return note("e"); }
  Action after_train(const StepReport&) override { return note("t"); }
  void contribute(Numbers& numbers) override { numbers.add("sum", static_cast<double>(sum_)); }
  std::string save() const override { return std::to_string(sum_); }
  void load(std::string_view saved) override { sum_ = std::stoull(std::string(saved)); }

 private:
  static Action note(const char* what) { return say(what); }
  std::uint64_t sum_ = 0;
};

StepReport report_of(std::uint64_t step) {
  StepReport report;
  report.step = step;
  return report;
}

TEST(Board, HooksAreCalledInOrderAndAnswersAddUp) {
  Board board;
  board.add("diary", std::make_unique<Diary>());
  board.tell(report_of(0), {.train_begins = true, .epoch_begins = true, .step_begins = true});
  board.tell(report_of(5), {.step_ended = true, .epoch_ended = true, .epoch_begins = true, .step_begins = true});
  board.tell(report_of(6), {.step_ended = true, .epoch_ended = true, .train_ended = true});
  auto answers = board.take_answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].action.text, "T; E; S; s; e; E; S; s; e; t");
  EXPECT_EQ(answers[0].numbers.values().at("sum"), 11);
  EXPECT_EQ(answers[0].failure, "");
  EXPECT_TRUE(board.take_answers()[0].action.empty());  // taken
}

TEST(Board, WhoThrowsIsNamedAndTheOthersGoOn) {
  Board board;
  board.add("bad", std::make_unique<Scripted>([](const auto&) -> Action { throw std::runtime_error("no idea"); }));
  board.add("odd", std::make_unique<Scripted>([](const auto&) -> Action { throw 7; }));
  board.add("impossible", std::make_unique<Scripted>([](const auto&) { return resize(0); }));
  board.add("good", std::make_unique<Scripted>([](const auto&) { return resize(3); }));
  board.tell(report_of(1), {.step_ended = true});
  auto answers = board.take_answers();
  EXPECT_EQ(answers[0].failure, "no idea");
  EXPECT_EQ(answers[1].failure, "it threw something that is no exception");
  EXPECT_EQ(answers[2].failure, "a job of 0 workers cannot be");
  EXPECT_EQ(answers[3].failure, "");
  EXPECT_EQ(answers[3].action.workers, 3);
}

TEST(Board, WhoNeverAnswersIsLeftAlone) {
  auto released = std::make_shared<std::atomic<bool>>(false);
  {
    Board board(50ms);
    board.add("stuck", std::make_unique<Scripted>([released](const auto&) {
                while (!*released) std::this_thread::sleep_for(1ms);
                return keep();
              }));
    board.add("good", std::make_unique<Scripted>([](const auto&) { return resize(3); }));
    board.tell(report_of(1), {.step_ended = true});
    auto answers = board.take_answers();
    EXPECT_EQ(answers[0].failure, "it did not answer within 50 ms");
    EXPECT_EQ(answers[1].action.workers, 3);
    board.dismiss(0);
    board.tell(report_of(2), {.step_ended = true});
    EXPECT_EQ(board.take_answers()[0].failure, "");
  }  // does not wait for it
  *released = true;
  while (released.use_count() > 1) std::this_thread::sleep_for(1ms);  // its thread ends as soon as it can
}

TEST(Board, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  std::array<int, 2> told{};
  ASSERT_EQ(pipe(told.data()), 0);
  pid_t child = fork();
  if (child == 0) {
    Board board(std::chrono::milliseconds(1000));
    board.add("slow", std::make_unique<Scripted>([&](const StepReport&) {
                [[maybe_unused]] auto size = write(told[1], "x", 1);
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                return Action{};
              }));
    board.tell({}, {.step_ended = true});
    _exit(board.take_answers()[0].failure.empty() ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than a policy may take
  kill(child, SIGCONT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  close(told[0]);
  close(told[1]);
}

TEST(Board, StatesMoveToAnotherWorkerWithAnswersThatNobodyTook) {
  Board here, there;
  for (auto* board : {&here, &there}) {
    board->add("gone", std::make_unique<Diary>());
    board->add("diary", std::make_unique<Diary>());
  }
  here.dismiss(0);
  here.tell(report_of(40), {.step_ended = true});
  there.load(here.save()).or_throw();
  EXPECT_TRUE(there.dismissed(0));
  for (auto* board : {&here, &there}) {
    board->tell(report_of(2), {.step_ended = true});
    auto answer = board->take_answers()[1];
    EXPECT_EQ(answer.action.text, "s; s");
    EXPECT_EQ(answer.numbers.values().at("sum"), 42);
  }
}

TEST(Board, WhoCannotGoOnFromASavedStateIsNamed) {
  class Picky final : public Policy {
    std::string save() const override { return "x"; }
    void load(std::string_view) override { throw std::runtime_error("no such state"); }
  };
  Board board, other;
  board.add("picky", std::make_unique<Picky>());
  other.add("picky", std::make_unique<Picky>());
  ASSERT_TRUE(other.load(board.save()).ok());
  EXPECT_EQ(other.take_answers()[0].failure, "it cannot go on from what the others know: no such state");
}

TEST(Board, OtherPoliciesAreAMismatch) {
  Board here, fewer, others;
  here.add("diary", std::make_unique<Diary>());
  others.add("other", std::make_unique<Diary>());
  EXPECT_EQ(fewer.load(here.save()).error().code, Code::mismatch);
  EXPECT_EQ(others.load(here.save()).error().code, Code::mismatch);
  auto saved = here.save();
  for (std::size_t size = 0; size < saved.size(); ++size) EXPECT_FALSE(here.load(saved.substr(0, size)).ok());
}

TEST(Reconcile, TakesWhatDoesNotContradict) {
  auto all = reconcile({"a", "b", "c"}, {resize(4), batch_of(64).also(resize(4)), say("x")});
  EXPECT_TRUE(all.complaints.empty());
  EXPECT_EQ(all.action.workers, 4);
  EXPECT_EQ(all.action.global_batch, 64U);
  EXPECT_EQ(all.action.text, "x");
}

TEST(Reconcile, ContradictionsAreReportedAndNotHalfDone) {
  auto all = reconcile({"a", "b"}, {resize(4).also(batch_of(64)), resize(8)});
  ASSERT_EQ(all.complaints.size(), 1U);
  EXPECT_EQ(all.complaints[0], "policy 'a' wants 4 workers, 'b' wants 8 workers: neither is done");
  EXPECT_FALSE(all.action.workers);
  EXPECT_EQ(all.action.global_batch, 64U);
  all = reconcile({"a", "b"}, {batch_per_worker(4), batch_of(64)});
  EXPECT_EQ(all.complaints.size(), 1U);
  EXPECT_TRUE(all.action.empty());
}

}  // namespace
}  // namespace pliant::policy
