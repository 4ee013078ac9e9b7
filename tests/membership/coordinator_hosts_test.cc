// The coordinator of a job on several hosts, each with an agent of its own.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

class HostsTest : public CoordinatorTest {
 protected:
  static constexpr Link kFirst = 2000, kSecond = 2001;

  /// An agent without workers, as all are at a job's start.
  void agent(Link link, const std::string& host, std::uint32_t slots) {
    say(link, wire::AgentHello{"job", host, slots});
    say(link, wire::AgentHello{"job", host, slots});
  }
  Ids started_at(Link link) const {
    Ids ids;
    for (const auto& start : sent<wire::Start>(link)) ids.push_back(start.id);
    return ids;
  }
  /// Each member on the host that its place in `hosts` names.
  static View on_hosts(View view, const std::string& hosts) {
    for (std::size_t i = 0; i < hosts.size(); ++i) view.members[i].host = hosts[i];
    return view;
  }
  void join_from(std::uint64_t id, const std::string& host) {
    auto request = join_of(id);
    request.host = host;
    join(request);
  }
  /// Workers 0 and 1 on host a, 2 on host b.
  void make_running_on_two() {
    make({.wanted = 3});
    agent(kFirst, "a", 2);
    agent(kSecond, "b", 2);
    for (std::uint64_t id : {0, 1}) say(kFirst, wire::Started{id, static_cast<int>(100 + id)});
    say(kSecond, wire::Started{2, 102});
    for (std::uint64_t id : {0, 1}) join_from(id, "a");
    join_from(2, "b");
    ASSERT_TRUE(machine_->formed());
  }
};

TEST_F(HostsTest, SlotsAreFilledInTheOrderOfAgents) {
  make({.wanted = 3});
  agent(kFirst, "z", 2);
  EXPECT_EQ(started_at(kFirst), (Ids{0, 1}));
  agent(kSecond, "a", 2);
  EXPECT_EQ(started_at(kSecond), (Ids{2}));
  resize(4);
  EXPECT_EQ(started_at(kSecond), (Ids{3}));
  resize(5);  // nobody has room
  EXPECT_TRUE(started_at(kFirst).empty() && started_at(kSecond).empty());
}

TEST_F(HostsTest, AReplacementGoesWhereThereIsRoom) {
  make_running_on_two();
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  auto after = view_of(2, 2, {1, 2});
  after.members[0].host = "a", after.members[1].host = "b";
  adopt(after, 1);
  EXPECT_EQ(started_at(kFirst), (Ids{3}));
}

TEST_F(HostsTest, ADeathIsToldToMembersOnOtherHosts) {
  make_running_on_two();
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2}));
  EXPECT_EQ(sent_to_worker<wire::Dead>(2).at(0).id, 0U);
  say(kFirst, wire::Ended{0, 0, "again"});
  EXPECT_TRUE(workers_sent<wire::Dead>().empty());
}

TEST_F(HostsTest, WhoWaitsOutsideHearsOfDeathsToo) {
  make_running_on_two();
  join_from(3, "b");
  join_from(4, "a");
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2, 3})) << "4 is a neighbour, and sees it";
  say(kFirst, wire::Ended{4, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2, 3})) << "a plan may have named it";
}

TEST_F(HostsTest, WithADeathAMemberHearsOfTheViewThatOnlyTheDeadHadReported) {
  make_running_on_two();
  adopt(on_hosts(view_of(1, 2, {0, 1, 2}), "aab"), 0);
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 2});
  ASSERT_EQ(sent_to_worker<wire::ViewNotice>(2).size(), 1U);
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(2)[0].epoch, 2U);
  adopt(on_hosts(view_of(1, 2, {0, 1, 2}), "aab"), 2);
  say(kFirst, wire::Ended{1, 0, "killed by signal 9", 0, 2});
  EXPECT_TRUE(sent_to_worker<wire::ViewNotice>(2).empty()) << "it knows";
}

TEST_F(HostsTest, WhoConnectsAgainHearsOfDeathsOutsideOfTheView) {
  make_running_on_two();
  adopt(on_hosts(view_of(2, 2, {1, 2}), "ab"), 1);
  machine_->on_closed(link_of(2));
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 1});
  join_from(2, "b");
  EXPECT_EQ(sent_to_worker<wire::Dead>(2).at(0).id, 0U);
}

TEST_F(HostsTest, WhoComesWithAViewHearsWhoOfItHasDied) {
  make_running_on_two();
  join_from(3, "b");
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 1});
  adopt(on_hosts(view_of(2, 2, {0, 2, 3}), "abb"), 2);
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{3})) << "2 has heard it before";
}

TEST_F(HostsTest, TheEndOfWhatLedToAWorkerIsNoProof) {
  make_running_on_two();
  say(kFirst, wire::Started{0, 4711});  // a connection to its host, say
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_TRUE(workers_sent<wire::Dead>().empty());
}

TEST_F(HostsTest, AnAgentThatIsGoneGetsNothingToDo) {
  make_running_on_two();
  out_ = machine_->on_closed(kSecond);
  resize(4);
  EXPECT_TRUE(started_at(kSecond).empty());
  agent(3000, "b", 2);
  EXPECT_EQ(started_at(3000), (Ids{3}));
}

TEST_F(HostsTest, WhoIsLostWithItsHostIsReplacedElsewhereAtNoCost) {
  make({.wanted = 3, .restarts = 0});
  agent(kFirst, "a", 3);
  agent(kSecond, "b", 1);
  resize(4);
  for (std::uint64_t id : {0, 1, 2}) join_from(id, "a");
  join_from(3, "b");
  adopt(on_hosts(view_of(2, 2, {0, 1, 2, 3}), "aaab"), 0);
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(3));
  agent(3000, "c", 1);
  EXPECT_TRUE(started_at(3000).empty());  // it may still be a member
  adopt(on_hosts(view_of(3, 3, {0, 1, 2}), "aaa"), 0);
  EXPECT_EQ(started_at(3000), (Ids{4}));
}

TEST_F(HostsTest, WhoWasLostWithItsHostMayComeBack) {
  make_running_on_two();
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(2));
  adopt(on_hosts(view_of(2, 2, {0, 1}), "aa"), 0);
  join_from(2, "b");
  EXPECT_TRUE(sent_to_worker<wire::Refusal>(2).empty());
  EXPECT_FALSE(sent_to_worker<wire::ViewNotice>(2).empty());
}

TEST_F(HostsTest, AHostThatComesBackWithoutItsWorkersHasRoomAgain) {
  make_running_on_two();
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(2));
  adopt(on_hosts(view_of(2, 2, {0, 1}), "aa"), 0);
  agent(3000, "b", 1);
  EXPECT_EQ(started_at(3000), (Ids{3}));
}

TEST_F(HostsTest, WhoOnlyWatchesStartsNobodyAndHearsAll) {
  make({.wanted = 1});
  agent(kFirst, "", 0);
  EXPECT_TRUE(started_at(kFirst).empty());
  agent(kSecond, "b", 1);
  join_from(0, "b");
  EXPECT_EQ(sent<wire::JobState>(kFirst).size(), 1U);
  say(link_of(0), wire::Bye{});
  ASSERT_EQ(sent<wire::Over>(kFirst).size(), 1U);
  EXPECT_EQ(wire::outcome_in(sent<wire::Over>(kFirst)[0].outcome), Outcome::finished);
  EXPECT_EQ(sent<wire::Over>(kSecond).size(), 1U);
}

TEST_F(HostsTest, AllAgentsHearThatThereWillBeNoView) {
  make({.wanted = 2});
  agent(kFirst, "a", 1);
  agent(kSecond, "b", 1);
  say(kSecond, wire::Ended{1, 0, "exit code 3"});
  for (auto link : {kFirst, kSecond}) {
    ASSERT_EQ(sent<wire::Over>(link).size(), 1U);
    EXPECT_EQ(wire::outcome_in(sent<wire::Over>(link)[0].outcome), Outcome::failed);
    EXPECT_NE(sent<wire::Over>(link)[0].reason.find("exit code 3"), std::string::npos);
  }
}

TEST_F(HostsTest, AgentsAreStoppedTogetherOrOneByOne) {
  make_running_on_two();
  say(kFirst, wire::Stop{"b", 1});
  EXPECT_TRUE(sent<wire::Stop>(kFirst).empty());
  ASSERT_EQ(sent<wire::Stop>(kSecond).size(), 1U);
  EXPECT_EQ(sent<wire::Stop>(kSecond)[0].force, 1);
  say(kFirst, wire::Stop{});
  EXPECT_EQ(sent<wire::Stop>(kFirst).size() + sent<wire::Stop>(kSecond).size(), 2U);
  say(link_of(0), wire::Stop{});  // no worker may
  EXPECT_TRUE(sent<wire::Stop>(kFirst).empty());
}

TEST_F(HostsTest, AnAgentOfOneHostSaysNothingOfWorkersOfAnother) {
  make_running_on_two();
  out_ = machine_->on_closed(kFirst);
  agent(3000, "a", 2);  // it names nobody: its workers are in the view and stay; those of host b are not its affair
  EXPECT_TRUE(started_at(3000).empty());
  EXPECT_EQ(machine_->view().size(), 3);
}

TEST_F(HostsTest, EveryAgentHearsHowTheJobIs) {
  make_running_on_two();
  resize(4);
  EXPECT_EQ(sent<wire::JobState>(kFirst).at(0).wanted, 4U);
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).wanted, 4U);
}

}  // namespace
}  // namespace pliant::membership
