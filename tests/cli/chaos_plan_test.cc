// The pure parts of `pliant chaos`: what follows from a seed, whom it may hit, and how gaps are read from records.
#include "apps/pliant/chaos_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "apps/pliant/chaos_gaps.h"
#include "apps/pliant/chaos_links.h"
#include "apps/pliant/chaos_report.h"
#include "apps/pliant/chaos_trail.h"
#include "apps/pliant/chaos_undo.h"

namespace pliant::cli::chaos {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<std::uint64_t>;

std::vector<Kind> every_kind() {
  std::vector<Kind> kinds;
  for (const auto& info : all_kinds()) kinds.push_back(info.kind);
  return kinds;
}

/// So many sound members, numbered from 0.
Situation members(int count) {
  Situation now;
  for (int id = 0; id < count; ++id) {
    WorkerSeen worker;
    worker.id = static_cast<std::uint64_t>(id);
    worker.member = worker.holds_state = true;
    now.workers.push_back(worker);
  }
  now.wanted = static_cast<std::uint32_t>(count);
  now.coordinator = now.agent = now.store = true;
  return now;
}

void add_newcomer(Situation& now, std::uint64_t id) {
  WorkerSeen worker;
  worker.id = id;
  now.workers.push_back(worker);
}

PlanOptions options_of(std::vector<Kind> kinds, std::uint64_t seed = 1) {
  PlanOptions options;
  options.seed = seed;
  options.kinds = std::move(kinds);
  return options;
}

TEST(ChaosKinds, NamesAreUniqueAndInOrder) {
  std::set<std::string_view> names;
  for (const auto& info : all_kinds()) {
    EXPECT_EQ(&info_of(info.kind), &info);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(!info.by_default || info.need == Need::nothing) << info.name;
  }
  EXPECT_TRUE(std::ranges::none_of(default_kinds(), [](Kind kind) { return kind == Kind::everybody; }));
}

TEST(ChaosKinds, AreParsed) {
  EXPECT_EQ(parse_kinds("kill,join-kill,kill").or_throw(), (std::vector{Kind::kill, Kind::join_kill}));
  auto more = parse_kinds("everybody,default").or_throw();
  EXPECT_EQ(more.size(), default_kinds().size() + 1);
  for (const char* wrong : {"", "kil", "kill,,term", "Kill"}) EXPECT_FALSE(parse_kinds(wrong).ok()) << wrong;
}

TEST(ChaosPlan, ASeedNamesASchedule) {
  Planner one(options_of(every_kind(), 7)), same(options_of(every_kind(), 7)), other(options_of(every_kind(), 8));
  bool differs = false;
  std::set<Kind> kinds;
  Nanos sum{0};
  for (std::uint64_t n = 0; n < 2000; ++n) {
    auto draw = one.draw(n);
    EXPECT_EQ(draw.kind, same.draw(n).kind);
    EXPECT_EQ(draw.wait, same.draw(n).wait);
    EXPECT_EQ(draw.rolls, same.draw(n).rolls);
    differs = differs || draw.wait != other.draw(n).wait;
    EXPECT_GE(draw.wait, 0ns);
    EXPECT_LE(draw.wait, 4s);
    sum += draw.wait;
    kinds.insert(draw.kind);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(kinds.size(), all_kinds().size());
  EXPECT_NEAR(seconds(sum) / 2000, 1.0, 0.1);
}

TEST(ChaosPlan, OneSoundMemberIsAlwaysSpared) {
  auto kinds = every_kind();
  std::erase(kinds, Kind::everybody);
  Planner planner(options_of(kinds));
  for (std::uint64_t n = 0; n < 5000; ++n) {
    auto draw = planner.draw(n);
    auto now = members(1 + static_cast<int>(n % 4));
    for (auto& worker : now.workers) {
      worker.host = worker.id % 2 ? "a" : "b";
      worker.stopped = (draw.rolls[2] >> worker.id) % 4 == 0;
      worker.struck = (draw.rolls[2] >> (8 + worker.id)) % 4 == 0;
      worker.holds_state = (draw.rolls[2] >> (16 + worker.id)) % 4 != 0;
    }
    add_newcomer(now, 9);
    auto event = planner.aim(draw, now);
    bool kills = draw.kind != Kind::sigstop && draw.kind != Kind::freeze;
    if (!event.ok() || event.value().victims.empty() || !kills) continue;
    const auto& victims = event.value().victims;
    EXPECT_EQ(std::set(victims.begin(), victims.end()).size(), victims.size());
    EXPECT_TRUE(std::ranges::any_of(now.workers, [&](const auto& worker) {
      return worker.sound() && std::ranges::find(victims, worker.id) == victims.end();
    })) << name_of(draw.kind);
  }
}

TEST(ChaosPlan, TheLastMemberIsNotKilledButANewcomerIs) {
  Planner planner(options_of({Kind::kill}));
  auto now = members(1);
  auto none = planner.aim(planner.draw(0), now);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "no worker can be spared");
  add_newcomer(now, 5);
  EXPECT_EQ(planner.aim(planner.draw(0), now).or_throw().victims, Ids{5});
  now.workers[0].stopped = true;  // may be left behind meanwhile
  EXPECT_FALSE(planner.aim(planner.draw(0), now).ok());
}

TEST(ChaosPlan, WhoeverIsAboutToBeLeftOutDoesNotCount) {
  auto now = members(3);
  EXPECT_EQ(expendable(now).size(), 3u);
  EXPECT_EQ(expendable(now, {0, 1}).size(), 0u);
  now.wanted = 2;  // one of the three leaves: one beside it must be spared
  EXPECT_EQ(expendable(now).size(), 3u);
  EXPECT_EQ(expendable(now, {0}).size(), 0u);
  now.wanted = 1;
  EXPECT_EQ(expendable(now).size(), 0u);
}

TEST(ChaosPlan, SomethingOfTheJobIsAlwaysLeft) {
  Planner everybody(options_of({Kind::everybody})), coordinator(options_of({Kind::coordinator}));
  auto now = members(2);
  now.agent = now.coordinator = false;
  EXPECT_FALSE(everybody.aim(everybody.draw(0), now).ok());
  for (auto& worker : now.workers) worker.struck = true;
  now.coordinator = true;
  EXPECT_FALSE(coordinator.aim(coordinator.draw(0), now).ok());
  now.agent = true;
  EXPECT_TRUE(coordinator.aim(coordinator.draw(0), now).ok());
}

TEST(ChaosPlan, EverybodyIsEverybody) {
  Planner planner(options_of({Kind::everybody}));
  auto now = members(2);
  add_newcomer(now, 7);
  EXPECT_EQ(planner.aim(planner.draw(0), now).or_throw().victims, (Ids{0, 1, 7}));
}

TEST(ChaosPlan, ResizesStayWithinTheirLimits) {
  auto options = options_of({Kind::resize, Kind::join_kill});
  options.least = 2;
  options.most = 4;
  Planner planner(options);
  std::set<std::uint32_t> sizes;
  for (std::uint64_t n = 0; n < 200; ++n) {
    auto now = members(3);
    auto event = planner.aim(planner.draw(n), now).or_throw();
    EXPECT_NE(event.workers, 3u);
    sizes.insert(event.workers);
    EXPECT_LE(event.delay, 1500ms);
  }
  EXPECT_EQ(sizes, (std::set<std::uint32_t>{2, 4}));
  auto orphan = members(3);
  orphan.agent = false;
  EXPECT_FALSE(planner.aim(planner.draw(0), orphan).ok());
}

TEST(ChaosPlan, PausesAreShortAndLong) {
  Planner planner(options_of({Kind::sigstop}));
  int below = 0;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    auto pause = planner.aim(planner.draw(n), members(2)).or_throw().pause;
    EXPECT_GE(pause, 50ms);
    EXPECT_LE(pause, 2s);
    below += pause < 316ms;
  }
  EXPECT_NEAR(below, 500, 80);
}

TEST(ChaosPlan, ACoordinatorIsNotKilledTooOften) {
  Planner planner(options_of({Kind::coordinator}));
  auto now = members(2);
  EXPECT_TRUE(planner.aim(planner.draw(0), now).ok());
  now.coordinators_killed = kCoordinatorsMost;
  EXPECT_FALSE(planner.aim(planner.draw(0), now).ok());
}

TEST(ChaosPlan, AHostIsLostOnlyIfAnotherCarriesOn) {
  Planner planner(options_of({Kind::host}));
  auto now = members(3);
  for (auto& worker : now.workers) worker.host = worker.id == 0 ? "a" : "b";
  now.workers[1].stopped = now.workers[2].stopped = true;
  EXPECT_EQ(planner.aim(planner.draw(0), now).or_throw().host, "b");
  now.workers[0].struck = true;
  EXPECT_FALSE(planner.aim(planner.draw(0), now).ok());
}

TEST(ChaosPlan, JoinKillStrikesNewcomersAndMembers) {
  auto now = members(3);
  add_newcomer(now, 3);
  std::set<std::uint64_t> struck;
  for (std::uint64_t n = 0; n < 100; ++n) struck.insert(*Planner::second_victim(n * 0x9e3779b97f4a7c15U, now));
  EXPECT_EQ(struck, (std::set<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_FALSE(Planner::second_victim(0, members(1)));
}

TEST(ChaosLinks, AreParsedAndBecomeCommands) {
  auto link = parse_link("h0=sw/port0@100mbit").or_throw();
  EXPECT_EQ(link.netns, "sw");
  LinkCommands links;
  links.links = {link, parse_link("h1=eth0").or_throw()};
  EXPECT_EQ(links.command(Kind::cut, "h0"), "ip -n sw link set port0 down");
  EXPECT_EQ(links.heal_command(Kind::cut, "h1"), "ip link set eth0 up");
  EXPECT_EQ(links.heal_command(Kind::one_way, "h1"), "tc qdisc del dev eth0 root");
  EXPECT_EQ(links.heal_command(Kind::slow, "h0"),
            "tc -n sw qdisc replace dev port0 root tbf rate 100mbit burst 256kb latency 100ms");
  links.commands[Kind::cut] = "cut {host} {host}";
  links.heal = "heal {host}";
  EXPECT_EQ(links.command(Kind::cut, "h1"), "cut h1 h1");
  EXPECT_EQ(links.heal_command(Kind::cut, "h1"), "heal h1");
  for (const char* wrong : {"", "h0", "=a", "h0=", "h0=a/b/c", "h0=a;b", "h0=-a", "h0=a@", "h0=$(x)"})
    EXPECT_FALSE(parse_link(wrong).ok()) << wrong;
}

TEST(ChaosUndo, SurvivesItsText) {
  Undo undo;
  undo.what = Undo::What::command;
  undo.process = {12, 34};
  undo.cgroup = "/a b";
  undo.command = R"(echo "x y" \ 'z')";
  auto back = undo_from(undo_text(undo));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->what, undo.what);
  EXPECT_EQ(back->process, undo.process);
  EXPECT_EQ(back->cgroup, undo.cgroup);
  EXPECT_EQ(back->command, undo.command);
  for (const char* wrong : {"", "7 1 2 \"\" \"\" \"\"", "0 1", "x"}) EXPECT_FALSE(undo_from(wrong)) << wrong;
}

/// Steps 0, 1, … at these times, all of one epoch.
StepTimes at_times(const std::vector<double>& times) {
  StepTimes steps;
  for (std::size_t i = 0; i < times.size(); ++i) steps[{0, i}] = {times[i], 0};
  return steps;
}

TEST(ChaosGaps, AnEventHasTheLongestGapUntilTheNextOne) {
  auto steps = at_times({0, 1, 2, 5, 6, 6.5, 9, 10});
  auto gaps = gaps_after(steps, {2.5, 6.6, 9.5, 20});
  EXPECT_DOUBLE_EQ(gaps[0].value(), 3000);
  EXPECT_DOUBLE_EQ(gaps[1].value(), 2500);
  EXPECT_DOUBLE_EQ(gaps[2].value(), 1000);
  EXPECT_FALSE(gaps[3]);
  // The step in which the second event happens is not the first one's, unless both are in it.
  EXPECT_DOUBLE_EQ(gaps_after(steps, {1.5, 3})[0].value(), 1000);
  EXPECT_DOUBLE_EQ(gaps_after(steps, {2.5, 3})[0].value(), 3000);
  EXPECT_DOUBLE_EQ(usual_step(steps), 1000);
}

TEST(ChaosGaps, EvaluationsAndRestartsAreLeftOut) {
  auto steps = at_times({0, 1, 5, 6, 7});
  steps[{0, 3}].epoch = steps[{0, 4}].epoch = 1;  // step 2 waited for the evaluation
  steps[{1, 2}] = {30, 0};
  EXPECT_DOUBLE_EQ(gaps_after(steps, {0.5})[0].value(), 1000);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.99), 4);
  EXPECT_DOUBLE_EQ(quantile({5}, 0.5), 5);
}

/// A folder of records with these events in it.
class ChaosRecords : public ::testing::Test {
 protected:
  ChaosRecords() : dir_(::testing::TempDir() + "pliant-chaos-records") { std::filesystem::create_directory(dir_); }
  ~ChaosRecords() override { std::filesystem::remove_all(dir_); }
  void write(const std::string& name, const std::string& lines) { std::ofstream(dir_ + "/" + name) << lines; }
  const std::string dir_;
};

TEST_F(ChaosRecords, TellHowTheLastWorkerEnded) {
  EXPECT_FALSE(last_worker(dir_));
  write("agent.jsonl",
        "{\"t\":1,\"event\":\"ended\",\"worker\":0,\"text\":\"exit code 0\"}\n{\"t\":7,\"event\":[1]}\nno json\n"
        "{\"t\":2,\"event\":\"ended\",\"worker\":1,\"text\":\"killed by signal 9\"}\n");
  EXPECT_FALSE(last_worker(dir_)->good);
  // Without an agent, the coordinator is the one that knows.
  write("coordinator.jsonl",
        "{\"t\":3,\"event\":\"goodbye\",\"worker\":2,\"text\":\"\"}\n{\"t\":4,\"event\":\"gone\",\"worker\":2,\"text\":"
        "\"\"}\n");
  EXPECT_TRUE(last_worker(dir_)->good);
  write("coordinator-2.jsonl",
        "{\"t\":5,\"event\":\"gone\",\"worker\":3,\"text\":\"\"}\n{\"t\":6,\"event\":\"over\",\"text\":\"\"}\n"
        "{\"t\":7,\"event\":\"goodbye\",\"worker\":4,\"text\":\"\"}\n");
  EXPECT_FALSE(last_worker(dir_)->good);
}

TEST_F(ChaosRecords, AreReadWhileTheyGrow) {
  auto line = [](int step, double t, int view) {
    return fmt::format(
               R"({{"kind":"step","t":{},"step":{},"view":{},"view_hash":"0123456789abcdef","worker":2,"rank":0,)"
               R"("size":1,"epoch":0,"dataset":0,"samples":[],"global_batch":0,"lr":null,"loss":null,)"
               R"("digest":"0123456789abcdef","stall_ms":0,"lineage":0}})",
               t, step, view) +
           "\n";
  };
  Trail trail(dir_);
  trail.poll();
  EXPECT_FALSE(trail.newest());
  write("worker-2.jsonl", line(0, 1.5, 1) + line(1, 2.5, 1).substr(0, 20));
  trail.poll();
  EXPECT_EQ(trail.newest(), 0u);
  write("worker-2.jsonl", line(0, 1.5, 1) + line(1, 2.5, 3));
  trail.poll();
  EXPECT_EQ(trail.newest(), 1u);
  ASSERT_TRUE(trail.last_of(2));
  EXPECT_EQ(trail.last_of(2)->view.second, 3u);
  EXPECT_DOUBLE_EQ(trail.last_of(2)->t, 2.5);
  EXPECT_FALSE(trail.last_of(1));
}

TEST(ChaosReport, IsGoodOnlyIfAllIs) {
  Report report;
  report.job = "night";
  report.deeds = {{0, Kind::kill, 2.5, true, "worker 1", 2}, {1, Kind::term, 4, false, "no worker can be spared", 3}};
  report.steps = at_times({0, 1, 2, 5, 6});
  measure(report);
  EXPECT_DOUBLE_EQ(report.deeds[0].gap_ms.value(), 3000);
  EXPECT_FALSE(report.deeds[1].gap_ms);
  EXPECT_TRUE(report.good());
  EXPECT_NE(report_text(report).find("job night goes on"), std::string::npos) << report_text(report);
  EXPECT_NE(report_json(report).find("\"worst_ms\": 3000.0"), std::string::npos) << report_json(report);
  auto stuck = report;
  stuck.stuck = true;
  EXPECT_FALSE(stuck.good());
  report.verification = record::Verification{};
  EXPECT_FALSE(report.good());
  report.verification->value().ok = true;
  EXPECT_TRUE(report.good());
  report.ending_good = false;
  EXPECT_FALSE(report.good());
}

}  // namespace
}  // namespace pliant::cli::chaos
