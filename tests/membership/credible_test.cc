#include "membership/credible.h"

#include <gtest/gtest.h>

#include <functional>

namespace pliant::membership {
namespace {

wire::Member member(std::uint64_t id) { return {id, static_cast<int>(id) + 1000, "@", id < 3 ? "near" : "far"}; }

/// What worker 1 of a view with workers 1 to 4, two on each host, makes of a letter of worker 3.
struct Reader {
  wire::Member self = member(1);
  View view{.term = 5, .epoch = 7, .seed = 42, .planned = 7};
  Reader() {
    for (std::uint64_t id = 1; id < 5; ++id) view.members.push_back(member(id));
  }
  std::optional<Objection> reads(const wire::Message& letter, std::uint64_t from = 3) const {
    return objection_to(from, letter, {self, view, 6});
  }
  bool accuses(const wire::Message& letter, std::uint64_t from = 3) const {
    auto objection = reads(letter, from);
    return objection && objection->offence;
  }
  /// All letters that carry a view.
  std::vector<wire::Message> letters_with(const View& told) const {
    auto notice = notice_of(told);
    return {wire::InForce{6, notice},
            wire::Propose{6, notice},
            wire::Decline{6, notice},
            wire::Promise{6, notice, 0, {}, 1},
            wire::Promise{6, notice_of(view), 6, notice, 1},
            wire::Entered{told.hash(), notice}};
  }
};

TEST(Credible, WhatHonestMembersSayIs) {
  Reader reader;
  auto next = reader.view;
  next.term = 6;
  next.epoch = 8;
  next.members.push_back(member(9));
  next.newcomers = {9};
  for (const auto& told : {reader.view, next})
    for (const auto& letter : reader.letters_with(told)) EXPECT_FALSE(reader.reads(letter)) << letter.index();
  EXPECT_FALSE(reader.reads(wire::Claim{7, 1}));
  EXPECT_FALSE(reader.reads(wire::Stored{7, 1}));
  EXPECT_FALSE(reader.reads(wire::Promise{7, {}, 0, {}, 0}));  // of a newcomer, who knows no view
  EXPECT_FALSE(reader.reads(wire::Decline{7, {}}));
  EXPECT_FALSE(reader.reads(wire::Dead{4, {}}));
  EXPECT_FALSE(reader.reads(wire::Dead{9, {}}));  // perhaps of a view that is not known here
  EXPECT_FALSE(reader.reads(wire::Dead{2, {}}, 9));
}

TEST(Credible, ViewsThatCannotBeAreNot) {
  using Change = std::function<void(View&)>;
  std::vector<Change> changes{
      [](View& view) { view.members.clear(); },
      [](View& view) { view.members.push_back(view.members[0]); },
      [](View& view) { view.epoch = 0; },
      [](View& view) { view.newcomers = {99}; },
      [](View& view) {
        view.newcomers = {1, 2, 3, 4};
      },
      [](View& view) { view.seed = 1; },
      [](View& view) { view.members[0].host = "elsewhere"; },
      [](View& view) { view.epoch = UINT64_MAX; },
      [](View& view) { view.term = UINT64_MAX; },
  };
  Reader reader;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    auto forged = reader.view;
    changes[i](forged);
    for (const auto& letter : reader.letters_with(forged))
      EXPECT_TRUE(reader.accuses(letter)) << i << " " << letter.index();
  }
}

TEST(Credible, WhoHadThisWorkersIdBeforeMayHaveBeenElsewhere) {
  Reader reader;
  auto old = reader.view;
  old.members[0] = {1, 17, "@", "elsewhere"};
  EXPECT_FALSE(reader.reads(wire::InForce{5, notice_of(old)}));
}

TEST(Credible, WhoEntersAViewIsInItAndNamesIt) {
  Reader reader;
  EXPECT_TRUE(reader.accuses(wire::Entered{reader.view.hash() + 1, notice_of(reader.view)}));
  EXPECT_TRUE(reader.accuses(wire::Entered{reader.view.hash(), notice_of(reader.view)}, 9));
  EXPECT_TRUE(reader.accuses(wire::Entered{reader.view.hash(), {}}));
}

TEST(Credible, TermsFarAwayArePassedOverAndAbsurdOnesAreLies) {
  Reader reader;
  for (auto make : {+[](std::uint64_t term) {
                      return wire::Message(wire::Claim{term, 1});
                    },
                    +[](std::uint64_t term) {
                      return wire::Message(wire::Stored{term, 1});
                    },
                    +[](std::uint64_t term) {
                      return wire::Message(wire::Decline{term, {}});
                    },
                    +[](std::uint64_t term) {
                      return wire::Message(wire::Promise{term, {}, 0, {}, 0});
                    },
                    +[](std::uint64_t term) {
                      return wire::Message(wire::Promise{6, {}, term, {}, 0});
                    }}) {
    EXPECT_FALSE(reader.reads(make(6 + kFar)));
    ASSERT_TRUE(reader.reads(make(7 + kFar)));
    EXPECT_FALSE(reader.accuses(make(6 + kAbsurd)));
    EXPECT_TRUE(reader.accuses(make(7 + kAbsurd)));
  }
}

TEST(Credible, OfDeathsTellsWhoeverSharesAHostWithTheDead) {
  Reader reader;
  EXPECT_TRUE(reader.accuses(wire::Dead{2, {}}));
  EXPECT_TRUE(reader.accuses(wire::Dead{1, {}}));
  EXPECT_FALSE(reader.accuses(wire::Dead{3, {}}, 4));
}

}  // namespace
}  // namespace pliant::membership
