// Rows between three ranks whose control segments are plain memory.
#include "collective/rows.h"

#include <gtest/gtest.h>

#include <memory>

namespace pliant::collective {
namespace {

using Texts = std::vector<std::string>;

class RowsOfThree : public testing::Test {
 protected:
  RowsOfThree() {
    for (int rank = 0; rank < 3; ++rank) {
      memory_.push_back(std::make_unique<Control>());
      controls_.push_back(memory_.back().get());
    }
    for (int rank = 0; rank < 3; ++rank) rows_.push_back(std::make_unique<Rows>(memory_[rank].get(), controls_));
  }
  Rows& of(int rank) { return *rows_[rank]; }

  std::vector<std::unique_ptr<Control>> memory_;
  std::vector<const Control*> controls_;
  std::vector<std::unique_ptr<Rows>> rows_;
};

TEST_F(RowsOfThree, TheLastOneToPublishFindsThemComplete) {
  of(1).publish("one");
  EXPECT_FALSE(of(1).complete());
  EXPECT_TRUE(of(1).lacks(0));
  of(0).publish("zero");
  EXPECT_FALSE(of(0).complete());
  of(2).publish("");
  EXPECT_TRUE(of(2).complete());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(of(rank).take(), (Texts{"zero", "one", ""}));
}

TEST_F(RowsOfThree, ARankMayBeOneRowAhead) {
  for (int rank = 0; rank < 3; ++rank) of(rank).publish("first");
  EXPECT_EQ(of(0).take(), (Texts{"first", "first", "first"}));
  of(0).publish("second");
  EXPECT_EQ(of(1).take(), (Texts{"first", "first", "first"})) << "the other place is written";
  EXPECT_FALSE(of(1).lacks(0));
}

TEST_F(RowsOfThree, AnInterruptedExchangeIsSettledIfAllHavePublished) {
  EXPECT_FALSE(of(0).settle()) << "none was begun";
  of(0).publish("a");
  of(1).publish("b");
  EXPECT_FALSE(of(0).settle());
  EXPECT_EQ(of(0).published_by(1), "b");
  EXPECT_FALSE(of(0).published_by(2));
  of(2).publish("c");
  EXPECT_EQ(of(0).settle(), (Texts{"a", "b", "c"}));
  EXPECT_FALSE(of(0).settle()) << "it is over";
  EXPECT_FALSE(of(0).published_by(1)) << "of the next one";
  of(1).publish("next");
  EXPECT_EQ(of(0).published_by(1), "next");
}

TEST_F(RowsOfThree, ALengthThatAPeerHasSpoiledIsBounded) {
  for (int rank = 0; rank < 3; ++rank) of(rank).publish("x");
  memory_[1]->row_size[0] = UINT32_MAX;
  EXPECT_EQ(of(0).take()[1].size(), kRowBytes);
}

TEST_F(RowsOfThree, AllHaveConfirmed) {
  of(0).confirm();
  of(1).confirm();
  EXPECT_FALSE(of(0).all_confirmed());
  of(2).confirm();
  EXPECT_TRUE(of(0).all_confirmed());
  of(0).confirm();
  EXPECT_FALSE(of(0).all_confirmed());
  EXPECT_TRUE(of(1).all_confirmed());
}

}  // namespace
}  // namespace pliant::collective
