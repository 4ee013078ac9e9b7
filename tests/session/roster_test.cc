// The membership driver, with a transport that is played by the test.
#include "session/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "session/platform.h"

namespace pliant::session {
namespace {

using membership::View;

View view_of(std::uint64_t term, std::uint64_t epoch, const std::vector<std::uint64_t>& ids) {
  View view{term, epoch, 42, 0, {}};
  for (auto id : ids) view.members.push_back({id, 0, "@" + std::to_string(id)});
  return view;
}

/// What the roster hears, and what it tells the coordinator.
struct Post {
  TransportEvents events;
  std::set<std::uint64_t> out_of_reach;
  std::vector<wire::Message> told;
  std::vector<wire::Message> sent;
  std::vector<std::pair<wire::LastView, std::size_t>> noted;  // and how many claims had been sent by then

  template <class T>
  std::vector<T> told_of() const {
    std::vector<T> all;
    for (const auto& message : told)
      if (const auto* known = std::get_if<T>(&message)) all.push_back(*known);
    return all;
  }
  void lose(std::uint64_t id, bool orderly, std::uint64_t view) {
    events.on_lost({id, orderly, true, "the test says so", view});
  }
};

class PlayedTransport final : public Transport {
 public:
  explicit PlayedTransport(Post& post) : post_(post) {}
  void start(TransportEvents events) override { post_.events = std::move(events); }
  void stop() override {}
  void expect(std::vector<wire::Member>) override {}
  void send(std::vector<std::uint64_t>, wire::Message message) override { post_.sent.push_back(std::move(message)); }
  bool reaches(const std::vector<wire::Member>& members) const override {
    return std::ranges::none_of(members, [&](const auto& member) { return post_.out_of_reach.contains(member.id); });
  }
  void believe_dead(std::uint64_t, wire::LastView) override {}
  void leave_behind(std::uint64_t, const std::string&) override {}
  void on_settled(std::set<std::uint64_t>) override {}
  void note_view(wire::LastView view) override {
    auto is_claim = [](const auto& message) { return std::holds_alternative<wire::Claim>(message); };
    post_.noted.emplace_back(view, std::ranges::count_if(post_.sent, is_claim));
  }
  Result<std::unique_ptr<collective::Group>> form(collective::Team) override { return Error{Code::peer_lost, ""}; }
  void tell(wire::Message message) override { post_.told.push_back(std::move(message)); }
  void report(wire::Progress) override {}
  void report_outcome(Outcome, std::uint64_t) override {}
  void say_goodbye(Outcome, std::uint64_t) override {}
  void hang_up() override {}
  void decide(const std::string&, const std::string&, Answered) override {}

 private:
  Post& post_;
};

RosterOptions member_of(const View& view, Post& post) {
  RosterOptions options;
  options.job = "job";
  options.self = view.members[0];
  options.view = view;
  options.has_coordinator = true;
  options.open = [&post] { return std::make_unique<PlayedTransport>(post); };
  return options;
}

/// The machine's, but for the time.
class TimedPlatform final : public Platform {
 public:
  const Clock& clock() const override { return time; }
  double unix_time() const override { return real_.unix_time(); }
  std::unique_ptr<Condition> condition() override { return real_.condition(); }
  std::optional<std::string> variable(const char* name) const override { return real_.variable(name); }
  Result<std::optional<RosterOptions>> invitation() override { return real_.invitation(); }
  Result<std::unique_ptr<collective::Group>> group_of_one(collective::Team team) override {
    return real_.group_of_one(std::move(team));
  }
  std::unique_ptr<Reclaimer> reclaimer() override { return real_.reclaimer(); }
  Result<std::unique_ptr<record::RecordSink>> records(const JournalOptions& options, std::uint64_t worker) override {
    return real_.records(options, worker);
  }
  CheckpointStorage& checkpoints() override { return real_.checkpoints(); }
  std::unique_ptr<Notice> notice() override { return real_.notice(); }
  void lower_priority() override {}

  ManualClock time;

 private:
  Platform& real_ = Platform::current();
};

wire::InForce in_force(const View& view) { return {view.term, membership::notice_of(view)}; }

TEST(Roster, AViewThatWasNotEnteredInTimeIsForgottenWithTheEviction) {
  Post post;
  Roster roster(member_of(view_of(1, 1, {1, 2}), post));
  post.events.on_letter(2, in_force(view_of(2, 2, {1, 2})));
  ASSERT_TRUE(roster.await_next());
  post.events.on_letter(2, in_force(view_of(3, 3, {2})));
  EXPECT_FALSE(roster.await_next());
  post.events.on_coordinator(wire::Over{});
  EXPECT_FALSE(roster.await_entry("w[3]"));  // it is in no view, and nobody takes it in
}

TEST(Roster, TheCoordinatorHearsOfAViewThatEndsBeforeItIsEntered) {
  Post post;
  Roster roster(member_of(view_of(1, 1, {1, 2, 3}), post));
  post.lose(3, false, 1);
  post.events.on_letter(2, in_force(view_of(2, 2, {1, 2, 3})));  // it was taken in before it died
  EXPECT_TRUE(roster.must_change());
  auto reports = post.told_of<wire::Adopted>();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().view.epoch, 2U);
}

TEST(Roster, AChangeThatALossHasOvertakenIsNotAdopted) {
  Post post;
  Roster roster(member_of(view_of(1, 1, {1, 2, 3}), post));
  post.lose(3, false, 1);
  auto decided = view_of(1, 2, {1, 2, 3, 4});
  decided.planned = 2;
  roster.adopt(decided);  // a bug if it were: this member recovers
  EXPECT_TRUE(roster.must_change());
  EXPECT_EQ(roster.view().epoch, 1U);
}

TEST(Roster, WhoeverWasLeftBehindIsExpectedUntilItIsGone) {
  for (bool orderly : {false, true}) {
    Post post;
    Roster roster(member_of(view_of(1, 1, {1, 2, 3}), post));
    EXPECT_FALSE(roster.expects_somebody_back());
    post.lose(3, false, 1);
    post.events.on_letter(2, in_force(view_of(2, 2, {1, 2})));
    EXPECT_FALSE(roster.expects_somebody_back()) << "the dead do not come back";
    post.events.on_lost({2, false, false, "silent", 0});
    post.events.on_letter(2, in_force(view_of(3, 3, {1})));
    EXPECT_TRUE(roster.expects_somebody_back());
    post.lose(2, orderly, 2);
    EXPECT_FALSE(roster.expects_somebody_back());
  }
}

using namespace std::chrono_literals;

/// Lets time pass as the transport would, in ticks.
void pass(TimedPlatform& platform, Post& post, Nanos span) {
  for (Nanos passed{0}; passed < span; passed += 50ms) {
    platform.time.advance(50ms);
    post.events.on_tick();
  }
}

TEST(Roster, ANewcomerThatIsOutOfReachIsNamedToTheCoordinator) {
  TimedPlatform platform;
  PlatformScope scope(platform);
  Post post;
  const auto view = view_of(1, 1, {1, 2});
  Roster roster(member_of(view, post));
  post.out_of_reach = {2, 4};
  post.events.on_coordinator(wire::Plan{1, view.hash(), membership::notice_of(view_of(1, 2, {1, 2, 3, 4}))});
  EXPECT_FALSE(roster.plan()) << "nobody enters a view with somebody who is out of reach";
  pass(platform, post, 2900ms);
  EXPECT_TRUE(post.told_of<wire::Unreached>().empty()) << "connections take their time";
  pass(platform, post, 200ms);
  auto named = post.told_of<wire::Unreached>();
  ASSERT_EQ(named.size(), 1U) << "once, and of newcomers only";
  EXPECT_EQ(named[0].id, 4U);

  post.events.on_coordinator(wire::Plan{1, view.hash(), membership::notice_of(view_of(1, 2, {1, 3}))});
  EXPECT_TRUE(roster.plan()) << "the job grows without it";
}

/// Another coordinator came between, and went.
TEST(Roster, AnOutdatedPlanIsDeclined) {
  TimedPlatform platform;
  PlatformScope scope(platform);
  Post post;
  const auto view = view_of(1, 1, {1, 2});
  Roster roster(member_of(view, post));
  post.events.on_coordinator(wire::Claim{5, 0});
  wire::Plan plan{4, view.hash(), membership::notice_of(view_of(4, 2, {1, 2, 3}))};
  post.events.on_coordinator(plan);
  EXPECT_FALSE(roster.plan());
  auto declined = post.told_of<wire::Decline>();
  ASSERT_EQ(declined.size(), 1U);
  EXPECT_EQ(declined[0].term, 5U);
  post.events.on_coordinator(wire::Claim{6, 0});
  plan = {6, view.hash(), membership::notice_of(view_of(6, 2, {1, 2, 3}))};
  post.events.on_coordinator(plan);
  EXPECT_TRUE(roster.plan());
  EXPECT_EQ(post.told_of<wire::Decline>().size(), 1U);
}

TEST(Roster, ANewcomerThatIsReachedInTimeIsNotNamed) {
  TimedPlatform platform;
  PlatformScope scope(platform);
  Post post;
  const auto view = view_of(1, 1, {1, 2});
  Roster roster(member_of(view, post));
  post.events.on_coordinator(wire::Plan{1, view.hash(), membership::notice_of(view_of(1, 2, {1, 2, 3}))});
  for (int turn = 0; turn < 3; ++turn) {  // its connection is lost now and then
    post.out_of_reach = {3};
    pass(platform, post, 2s);
    post.out_of_reach.clear();
    pass(platform, post, 50ms);
  }
  EXPECT_TRUE(post.told_of<wire::Unreached>().empty());
  EXPECT_TRUE(roster.plan());
}

TEST(Roster, WhoeverIsOutOfReachAllTheTimeDoesNotHoldUpARecovery) {
  TimedPlatform platform;
  PlatformScope scope(platform);
  Post post;
  Roster roster(member_of(view_of(1, 1, {1, 2, 3, 4}), post));
  post.out_of_reach = {4};  // nobody has told of that, because nobody has seen it go
  post.lose(3, false, 1);
  post.events.on_letter(2, wire::Promise{2, membership::notice_of(view_of(1, 1, {1, 2, 3, 4})), 0, {}});
  auto proposed = [&] {
    return std::ranges::count_if(post.sent,
                                 [](const auto& message) { return std::holds_alternative<wire::Propose>(message); });
  };
  pass(platform, post, 450ms);
  EXPECT_EQ(proposed(), 0) << "it may be connected yet";
  pass(platform, post, 200ms);
  EXPECT_GT(proposed(), 0);
}

TEST(Absentees, WhoeverIsGoneForGoodIsForgottenInTheNextViewWithoutIt) {
  Absentees absentees;
  for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
    auto newcomer = 10 * epoch;
    absentees.on_view(View{1, epoch, 42, epoch, {{0, 0, "@0"}, {newcomer, 0, "@1"}, {newcomer + 1, 0, "@2"}}});
    absentees.on_goodbye(newcomer, epoch);
    absentees.on_death(newcomer + 1);
    absentees.on_death(newcomer + 2);  // which was never in a view
    EXPECT_FALSE(absentees.anybody_may_return());
    EXPECT_EQ(absentees.size(), 3U);
    absentees.on_settled({0, newcomer, newcomer + 1});
    EXPECT_EQ(absentees.size(), 2U);
    absentees.on_settled({0});
    EXPECT_EQ(absentees.size(), 0U);
  }
}

TEST(Absentees, WhoeverDiedBeforeItsViewWasInForceIsNotExpected) {
  Absentees absentees;
  absentees.on_view(view_of(1, 1, {1, 2}));
  absentees.on_death(3);
  absentees.on_view(view_of(1, 2, {1, 2, 3}));
  absentees.on_view(view_of(2, 3, {1, 2}));
  EXPECT_FALSE(absentees.anybody_may_return());
  absentees.on_found(3);  // the id, as another process
  absentees.on_view(view_of(2, 4, {1, 2, 3}));
  absentees.on_view(view_of(3, 5, {1, 2}));
  EXPECT_TRUE(absentees.anybody_may_return());
}

/// Whoever finds the note after this worker's death counts on it.
TEST(Roster, ThatItVotesIsNotedBeforeAnybodyCanHearTheVote) {
  using Noted = std::pair<wire::LastView, std::size_t>;
  Post post;
  auto view = view_of(1, 1, {1, 2, 3});
  Roster roster(member_of(view, post));
  roster.took(view);
  post.events.on_coordinator(wire::Claim{2, 0});
  ASSERT_EQ(post.noted, (std::vector{Noted{{1, true}, 0}})) << "a term for plans is no vote";
  post.lose(3, false, 1);
  ASSERT_TRUE(std::holds_alternative<wire::Claim>(post.sent.back()));
  EXPECT_EQ(post.noted.back(), (Noted{{1, false}, 0}));
}

TEST(Roster, AGoodbyeFromALaterViewProvesNothingAboutThisOne) {
  for (std::uint64_t last_view : {1, 2}) {
    Post post;
    Roster roster(member_of(view_of(1, 1, {1, 2, 3}), post));
    post.lose(3, true, last_view);
    post.lose(2, false, 1);
    post.events.on_coordinator(wire::Over{});  // or it would wait
    EXPECT_EQ(roster.await_next().has_value(), last_view == 1);
    EXPECT_EQ(roster.view().epoch, last_view == 1 ? 2U : 1U);
  }
}

}  // namespace
}  // namespace pliant::session
