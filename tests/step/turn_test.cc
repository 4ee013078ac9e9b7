#include "step/turn.h"

#include <gtest/gtest.h>

namespace pliant::step {
namespace {

record::StepRecord record_in(const membership::View& view) {
  Turn turn(nullptr);
  turn.attempt_in(view);
  return turn.record(JobState{}, 1);
}

membership::View view_of(std::uint64_t term, std::uint64_t epoch, const std::vector<std::uint64_t>& ids) {
  membership::View view;
  view.term = term;
  view.epoch = epoch;
  for (auto id : ids) view.members.push_back({id, 0, "@" + std::to_string(id)});
  return view;
}

/// Members may learn of one view from several candidates, each with a term of its own.
TEST(Turn, ARecordNamesAViewByItsMembersAndNotByItsTerm) {
  auto record = record_in(view_of(1, 2, {1, 3}));
  EXPECT_EQ(record.view_hash, record_in(view_of(4, 2, {1, 3})).view_hash);
  EXPECT_NE(record.view_hash, record_in(view_of(1, 2, {1, 4})).view_hash);
  EXPECT_NE(record.view_hash, record_in(view_of(1, 2, {1})).view_hash);
  EXPECT_NE(record.view_hash, record_in(view_of(1, 3, {1, 3})).view_hash);
}

}  // namespace
}  // namespace pliant::step
