#include "agent/election.h"

#include <gtest/gtest.h>

#include <vector>

#include "simulation/twin_store.h"

namespace pliant::agent {
namespace {

using namespace std::chrono_literals;

/// A host that takes part, and what it has heard.
struct Host {
  Host(sim::TwinServer& server, const std::string& name)
      : clock(server.scheduler()), missed_since(clock.now()), election(clock, server.open(), "job", events(name)) {
    tick();
  }
  ElectionEvents events(const std::string& name) {
    ElectionEvents events;
    events.offer = [this, name]() -> Result<std::string> {
      offers.push_back(clock.now());
      return "tcp:" + name;
    };
    events.on_place = [this](const std::string& address, bool is_here) {
      place = address;
      here = is_here;
      times_here += is_here;
      learned.push_back(clock.now());
    };
    events.on_trouble = [this](const std::string& line) { troubles.push_back(line); };
    return events;
  }
  /// The coordinator answers, or has ceased to do so.
  void answers(bool does) { missed_since = does ? std::nullopt : std::optional(clock.now()); }
  void tick() {
    clock.after(10ms, [this] {
      election.tick(missed_since ? std::optional(clock.now() - *missed_since) : std::nullopt);
      tick();
    });
  }

  sim::Scheduler& clock;
  std::optional<Nanos> missed_since;
  std::vector<Nanos> offers, learned;
  std::vector<std::string> troubles;
  std::string place;
  bool here = false;
  int times_here = 0;
  Election election;
};

class Elections : public testing::Test {
 protected:
  void run_for(Nanos span) {
    auto end = scheduler_.now() + span;
    while (scheduler_.now() < end) scheduler_.step();
  }
  /// What somebody else has written to the store.
  void take_place(const std::string& text) {
    auto now = server_.read(place_key("job")).value();
    ASSERT_TRUE(server_.replace(place_key("job"), now.revision, text).value().won);
  }
  std::string stored() { return server_.read(place_key("job")).value().text; }

  sim::Scheduler scheduler_{1};
  sim::TwinServer server_{scheduler_};
};

TEST_F(Elections, APlaceThatNobodyHasIsOfferedForAtOnce) {
  Host host(server_, "a");
  run_for(100ms);
  EXPECT_EQ(stored(), "tcp:a");
  EXPECT_EQ(host.place, "tcp:a");
  EXPECT_TRUE(host.here);
}

TEST_F(Elections, WhoeverHasACoordinatorAsksNobody) {
  server_.set_silent(true);
  Host host(server_, "a");
  host.answers(true);
  run_for(10s);
  EXPECT_TRUE(host.troubles.empty());
  EXPECT_TRUE(host.offers.empty());
}

TEST_F(Elections, WhereTheCoordinatorIsTheStoreSays) {
  take_place("tcp:b");
  Host host(server_, "a");
  run_for(Election::kPatience / 2);
  EXPECT_EQ(host.place, "tcp:b");
  EXPECT_FALSE(host.here);
  EXPECT_TRUE(host.offers.empty()) << "it has not had the time to answer";
}

/// The first place is waited for as long as ever: only then patience grows.
TEST_F(Elections, ASilentPlaceIsTakenOverWithPatienceThatDoubles) {
  Host host(server_, "a");
  host.answers(true);
  auto patience = Election::kPatience;
  take_place("tcp:b");
  host.answers(false);
  run_for(100ms);
  ASSERT_EQ(host.place, "tcp:b");
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    auto since = host.learned.back();
    host.offers.clear();
    while (host.offers.empty()) run_for(10ms);
    EXPECT_GE(host.offers.front() - since, patience);
    EXPECT_LT(host.offers.front() - since, patience + 50ms);
    run_for(100ms);
    ASSERT_TRUE(host.here);
    patience = std::min(2 * patience, Election::kMostPatience);
    take_place("tcp:b");
    run_for(100ms);
    ASSERT_EQ(host.place, "tcp:b");
    patience = std::min(2 * patience, Election::kMostPatience);
  }
  EXPECT_EQ(patience, Election::kMostPatience);
}

TEST_F(Elections, APlaceThatHasBeenSteadyEndsGreatPatience) {
  Host host(server_, "a");
  for (const auto* place : {"tcp:b", "tcp:c", "tcp:d", "tcp:e"}) {
    run_for(100ms);
    take_place(place);
  }
  run_for(100ms);
  ASSERT_EQ(host.place, "tcp:e");
  host.answers(true);
  run_for(Election::kSteady);
  host.answers(false);
  auto since = scheduler_.now();
  host.offers.clear();
  run_for(2 * Election::kPatience);
  ASSERT_FALSE(host.offers.empty());
  EXPECT_GE(host.offers.front() - since, Election::kPatience);
}

TEST_F(Elections, ItsOwnPlaceIsNotTakenOver) {
  Host host(server_, "a");
  run_for(100ms);
  ASSERT_TRUE(host.here);
  host.offers.clear();
  run_for(10s);  // it has still to begin
  EXPECT_TRUE(host.offers.empty());
}

/// The coordinator stores it again, if it lives.
TEST_F(Elections, APlaceThatIsGoneIsNotTakenBeforePatienceIsOver) {
  take_place("tcp:b");
  Host host(server_, "a");
  run_for(100ms);
  ASSERT_EQ(host.place, "tcp:b");
  host.answers(true);
  run_for(1s);
  ASSERT_TRUE(server_.remove_all("job/").ok());
  host.answers(false);
  run_for(Election::kPatience - 50ms);
  EXPECT_TRUE(host.offers.empty());
  run_for(150ms);
  EXPECT_EQ(stored(), "tcp:a");
  EXPECT_TRUE(host.here);
}

TEST_F(Elections, ItsOwnPlaceIsStoredAgain) {
  Host host(server_, "a");
  run_for(100ms);
  ASSERT_TRUE(host.here);
  host.offers.clear();
  ASSERT_TRUE(server_.remove_all("job/").ok());
  run_for(100ms);
  EXPECT_EQ(stored(), "tcp:a");
  EXPECT_TRUE(host.offers.empty()) << "the coordinator that is there stays";
}

TEST_F(Elections, NobodyIsLookedForAtAPlaceThatWasRemoved) {
  take_place("tcp:b");
  std::vector<std::string> places;
  ElectionEvents events;
  events.offer = [&]() -> Result<std::string> {
    EXPECT_TRUE(server_.remove_all("job/").ok());  // after it was read, before it is replaced
    return std::string("tcp:a");
  };
  events.on_place = [&](const std::string& address, bool) { places.push_back(address); };
  events.on_trouble = [](const std::string& line) { ADD_FAILURE() << line; };
  Election election(scheduler_, server_.open(), "job", events);
  for (auto at : {0s, 1s, 2s}) scheduler_.after(at, [&election] { election.tick(1s); });
  run_for(1500ms);
  EXPECT_EQ(places, std::vector<std::string>{"tcp:b"});
}

TEST(Election, OfTwoThatOfferThemselvesTogetherOnlyOneGetsThePlace) {
  int races = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    sim::Scheduler scheduler(seed);
    sim::TwinServer server(scheduler);
    ASSERT_TRUE(server.replace(place_key("job"), 0, "tcp:gone").value().won);
    Host one(server, "a"), other(server, "b");
    auto end = scheduler.now() + Election::kPatience + 100ms;
    while (scheduler.now() < end) scheduler.step();
    races += !one.offers.empty() && !other.offers.empty();
    EXPECT_NE(one.here, other.here);
    EXPECT_EQ(one.times_here + other.times_here, 1) << "not even for a while";
    EXPECT_EQ(one.place, other.place);
    EXPECT_EQ(one.place, server.read(place_key("job")).value().text);
  }
  EXPECT_GT(races, 0);
}

TEST_F(Elections, AStoreThatDoesNotAnswerIsNamedOnce) {
  server_.set_silent(true);
  Host host(server_, "a");
  run_for(10s);
  EXPECT_EQ(host.troubles.size(), 1U);
  EXPECT_TRUE(host.offers.empty());
  server_.set_silent(false);
  run_for(100ms);
  EXPECT_TRUE(host.here);
  server_.set_silent(true);
  run_for(10s);
  EXPECT_EQ(host.troubles.size(), 2U) << "it had answered in between";
}

TEST_F(Elections, AJobIsForgottenWhetherTheStoreAnswersOrNot) {
  Host host(server_, "a");
  run_for(100ms);
  host.answers(true);
  for (bool silent : {true, false}) {
    bool done = false;
    server_.set_silent(silent);
    host.election.forget([&] { done = true; });
    run_for(100ms);
    EXPECT_TRUE(done);
  }
  EXPECT_EQ(stored(), "");
}

}  // namespace
}  // namespace pliant::agent
