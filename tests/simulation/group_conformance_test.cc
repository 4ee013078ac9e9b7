// What a group promises, asked of every kind there is: over shared memory, over TCP, and of the simulation's twins.
// What the simulation finds out with twins is worth something only as far as they answer alike.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "collective/all_reduce_checks.h"
#include "collective/hosts.h"
#include "simulation/world.h"

namespace pliant::collective {
namespace {

/// Where a rank's part of a test runs.
class Stage {
 public:
  virtual ~Stage() = default;
  /// Waits until all ranks have come here as often. Works when the view has ended, too.
  virtual void meet() = 0;
  /// Happens a while later, on another thread of this rank's process.
  virtual void soon(std::function<void()> what) = 0;
};
using Part = std::function<void(Group& group, Stage& stage)>;
using Hosts = std::vector<int>;  // by rank

// ---- ranks as threads, with real groups ----

class ThreadStage final : public Stage {
 public:
  explicit ThreadStage(std::barrier<>& meeting) : meeting_(meeting) {}
  void meet() override { meeting_.arrive_and_wait(); }
  void soon(std::function<void()> what) override {
    threads_.emplace_back([what = std::move(what)] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      what();
    });
  }
  ~ThreadStage() override {
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::barrier<>& meeting_;
  std::vector<std::thread> threads_;
};

void run_real(const Hosts& hosts, const Part& part) {
  std::barrier<> meeting(static_cast<std::ptrdiff_t>(hosts.size()));
  auto body = [&](Group& group) {
    ThreadStage stage(meeting);
    part(group, stage);
    stage.meet();  // whoever leaves early would keep others from entering
  };
  if (std::set<int>(hosts.begin(), hosts.end()).size() == 1)
    run_threads(static_cast<int>(hosts.size()), body);
  else
    run_hosts(hosts, body);
}

// ---- ranks as simulated processes, with twins ----

class FiberStage final : public Stage {
 public:
  FiberStage(sim::Process& process, std::vector<int>& visits, int rank)
      : process_(process), visits_(visits), rank_(static_cast<std::size_t>(rank)) {}
  void meet() override {
    auto visit = ++visits_[rank_];
    while (std::ranges::any_of(visits_, [&](int other) { return other < visit; }))
      process_.sleep(std::chrono::milliseconds(1));
  }
  void soon(std::function<void()> what) override { process_.later(std::chrono::milliseconds(20), std::move(what)); }

 private:
  sim::Process& process_;
  std::vector<int>& visits_;
  const std::size_t rank_;
};

void run_twins(const Hosts& hosts, const Part& part) {
  const auto places = std::set<int>(hosts.begin(), hosts.end()).size();
  std::vector<wire::Member> members;
  std::vector<int> visits(hosts.size());
  std::size_t finished = 0;
  auto program = [&](sim::Process& self) {
    const int rank = static_cast<int>(self.id());
    sim::TwinTransport transport(self, members[self.id()]);
    session::TransportEvents events;
    events.on_letter = [](std::uint64_t, const wire::Message&) {};
    events.on_lost = [](const PeerLoss&) {};
    events.on_found = [](std::uint64_t) {};
    events.on_tick = [] {};
    events.introduce = [] { return wire::Join{}; };
    events.on_coordinator = [](const wire::Message&) {};
    events.on_silence = [](Nanos, const std::string&) {};
    transport.start(std::move(events));
    auto group = transport.form({"test", 42, members, rank}).or_throw();
    FiberStage stage(self, visits, rank);
    part(*group, stage);
    stage.meet();  // a process that ends takes its words with it
    ++finished;
  };
  sim::World world({.seed = 7, .hosts = static_cast<int>(places)}, program);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    members.push_back(
        {rank, 1000 + static_cast<int>(rank), "@" + std::to_string(rank), world.host_name(hosts[rank]), ""});
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) world.spawn(rank, world.host_name(hosts[rank]));
  while (finished < hosts.size() && world.failure().empty() && world.scheduler().step()) {
  }
  EXPECT_EQ(finished, hosts.size()) << world.failure();
}

// ---- what all promise ----

struct Kind {
  std::string name;
  std::function<void(const Hosts&, const Part&)> run;
  Hosts hosts;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  int ranks() const { return static_cast<int>(GetParam().hosts.size()); }
  void run(const Part& part) { GetParam().run(GetParam().hosts, part); }
};

TEST_P(Conformance, ReducesTypesAndOperationsExactly) {
  const bool one_host = std::ranges::count(GetParam().hosts, 0) == ranks();
  run([&](Group& group, Stage&) {
    for (bool registered : {true, false}) {
      check_everything<float>(group, registered, one_host);
      check_everything<double>(group, registered, one_host);
      check_everything<std::int64_t>(group, registered, one_host);
    }
  });
}

TEST_P(Conformance, GivesEverybodyTheSameBits) {
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks()));
  run([&](Group& group, Stage&) {
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 1 / (1 + static_cast<float>(i) + 0.3F * static_cast<float>(group.rank()));
    auto sum =
        group.submit({.name = "x", .count = values.size(), .in = values.data(), .out = values.data()}).or_throw();
    group.wait(sum).or_throw();
    digests[static_cast<std::size_t>(group.rank())] = digest_bytes(values.data(), values.size() * sizeof(float));
  });
  for (auto digest : digests) EXPECT_EQ(digest, digests[0]);
}

TEST_P(Conformance, WhoHasNoWeightDoesNotCount) {
  run([](Group& group, Stage&) {
    double value = group.rank() + 1;
    auto mean = group
                    .submit({.name = "x",
                             .dtype = Dtype::f64,
                             .op = Op::weighted_mean,
                             .count = 1,
                             .in = &value,
                             .out = &value,
                             .weight = group.rank() == 1 ? 3.0 : 0.0})
                    .or_throw();
    group.wait(mean).or_throw();
    EXPECT_EQ(value, 2);
  });
}

TEST_P(Conformance, RowsComeInTheOrderOfRanks) {
  run([](Group& group, Stage&) {
    for (int round = 0; round < 5; ++round) {
      auto rows = group.exchange(std::to_string(10 * round + group.rank())).or_throw();
      ASSERT_EQ(static_cast<int>(rows.size()), group.size());
      for (int rank = 0; rank < group.size(); ++rank)
        EXPECT_EQ(rows[static_cast<std::size_t>(rank)], std::to_string(10 * round + rank));
      group.confirm().or_throw();
    }
  });
}

TEST_P(Conformance, AResultStaysUntilTheUseAfterTheNext) {
  run([](Group& group, Stage&) {
    auto region = group.create_region("r", 4096).or_throw();
    auto* in = reinterpret_cast<float*>(region->input());
    OperationHandle before;
    for (int use = 1; use < 6; ++use) {
      in[0] = static_cast<float>(use);
      auto now = group.submit({.name = "x", .count = 1, .region = region}).or_throw();
      group.wait(now).or_throw();
      EXPECT_EQ(*static_cast<const float*>(now->result()), static_cast<float>(group.size() * use));
      if (before) {
        EXPECT_EQ(*static_cast<const float*>(before->result()), static_cast<float>(group.size() * (use - 1)));
      }
      before = now;
    }
  });
}

TEST_P(Conformance, AFenceEndsEveryWait) {
  run([](Group& group, Stage& stage) {
    float value = 1;
    if (group.rank() != 0) {  // the others wait for rank 0, which never comes
      auto one = group.submit({.name = "x", .count = 1, .in = &value, .out = &value}).or_throw();
      stage.soon([&group] { group.fence({Code::peer_lost, "the test says so"}); });
      auto waited = group.wait(one);
      ASSERT_FALSE(waited.ok());
      EXPECT_EQ(waited.error().code, Code::peer_lost);
    } else {
      group.fence({Code::peer_lost, "the test says so"});
    }
    EXPECT_TRUE(group.fenced());
    EXPECT_FALSE(group.exchange("row").ok());
    stage.meet();
  });
}

TEST_P(Conformance, AFenceEndsAnExchangeWhichSomebodyMissed) {
  run([](Group& group, Stage& stage) {
    group.exchange("before").or_throw();
    if (group.rank() != 0) {
      stage.soon([&group] { group.fence({Code::peer_lost, "the test says so"}); });
      auto rows = group.exchange("now");
      ASSERT_FALSE(rows.ok());
      EXPECT_EQ(rows.error().code, Code::peer_lost);
    }
    stage.meet();
    group.fence({Code::peer_lost, "the test says so"});
    stage.meet();
    if (group.rank() != 0) {
      EXPECT_FALSE(group.settle_exchange());
    }
    stage.meet();
  });
}

/// Between hosts what was not waited for may have arrived at some of them only.
TEST_P(Conformance, WhatStandsStillIsTheSameOnOneHost) {
  const auto& hosts = GetParam().hosts;
  std::vector<std::vector<bool>> found(static_cast<std::size_t>(ranks()), std::vector<bool>(3));
  run([&](Group& group, Stage& stage) {
    auto region = group.create_region("r", 3 * 4096).or_throw();
    auto submit = [&](const char* name, std::size_t at) {
      reinterpret_cast<float*>(region->input() + at * 4096)[0] = static_cast<float>(at + 1);
      return group.submit({.name = name, .count = 1, .region = region, .offset = at * 4096}).or_throw();
    };
    std::vector<OperationHandle> all{submit("waited for", 0), submit("submitted", 1)};
    group.wait(all[0]).or_throw();
    if (group.rank() != 0) all.push_back(submit("lacking", 2));
    stage.meet();
    group.fence({Code::peer_lost, "the test says so"});
    stage.meet();
    for (std::size_t at = 0; at < all.size(); ++at) {
      auto here = group.settle(all[at]);
      found[static_cast<std::size_t>(group.rank())][at] = here;
      if (here) {
        EXPECT_EQ(*static_cast<const float*>(all[at]->result()), static_cast<float>(group.size() * (at + 1)));
      }
    }
    stage.meet();  // memory of a rank may be needed to finish another's
  });
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_TRUE(found[rank][0]);
    if (std::ranges::count(hosts, 0) == ranks()) {
      EXPECT_EQ(found[rank][1], found[0][1]);
    }
    EXPECT_FALSE(found[rank][2]);
  }
}

TEST_P(Conformance, KnowsWhoIsOnItsHost) {
  const auto& hosts = GetParam().hosts;
  run([&](Group& group, Stage&) {
    std::vector<int> places(hosts.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      auto at = static_cast<std::size_t>(rank);
      EXPECT_EQ(group.is_local(rank), hosts[at] == hosts[static_cast<std::size_t>(group.rank())]);
      EXPECT_EQ(group.place_of(rank), places[static_cast<std::size_t>(hosts[at])]++);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, Conformance,
                         testing::Values(Kind{"SharedMemory", run_real, {0, 0, 0}}, Kind{"Hosts", run_real, {0, 1, 0}},
                                         Kind{"Twins", run_twins, {0, 0, 0}},
                                         Kind{"TwinsOnHosts", run_twins, {0, 1, 0}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pliant::collective
