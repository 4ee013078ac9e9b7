// A member of a job that knows the secret and sends what it likes to workers on other hosts.
#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "collective/bridge.h"
#include "collective/hosts.h"
#include "collective/roads.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBytes = 3 << 20;  // of what is reduced
constexpr int kVictim = 0, kHostile = 1, kFriend = 2;

/// Three workers on a host each, and who else may be told of them.
struct Job {
  TeamPlan plan{3};
  net::Secret secret = net::Secret::random();
  std::vector<net::Listener> gates;

  Job() {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      gates.push_back(net::tcp_listen("127.0.0.1", {}).or_throw());
      plan.members[rank].host = "host" + std::to_string(rank);
      plan.members[rank].endpoint = gates[rank].endpoint.text();
    }
  }
  HostsOptions hosts(int rank) { return {secret, std::move(gates[rank].socket), "", 60s}; }
  Team team(int rank) const { return plan.team(rank); }
  /// The view after it, without the hostile one.
  Team next_team(int rank) const {
    return {"test", plan.view_hash + 1, {plan.members[kVictim], plan.members[kFriend]}, rank == kVictim ? 0 : 1};
  }
};

/// The hostile worker: real connections, and frames as its test has them.
class Hostile final : public FrameSink {
 public:
  explicit Hostile(Job& job) : job_(job) {
    RoadEvents events;
    events.on_connected = [this](std::uint64_t id) {
      roads_->send(id, wire::Entered{job_.plan.view_hash, {}});
      note(connected_);
    };
    events.on_letter = [](std::uint64_t, const wire::Message&) {};
    events.on_lost = [](std::uint64_t, const std::string&) {};
    roads_ = std::make_unique<Roads>(loop_, "test", kHostile, job.hosts(kHostile), std::move(events));
    roads_->streams().subscribe(job.plan.view_hash, this);
    thread_ = std::thread([this] { loop_.run(); });
    loop_.post([this] {
      for (int rank : {kVictim, kFriend}) roads_->expect(job_.plan.members[rank]);
    });
    wait_for(connected_, 2);
    wait_for(described_, 2);
  }

  Result<std::byte*> place_for(std::uint64_t, const FrameHeader& header, std::vector<std::byte>& buffer) override {
    buffer.resize(header.bytes);
    return buffer.data();
  }
  Status on_frame(std::uint64_t, const FrameHeader& header, std::byte*) override {
    if (header.kind == kAnnounce) note(described_);
    return {};
  }

  static FrameHeader frame(std::uint16_t kind) {
    FrameHeader header;
    header.kind = kind;
    return header;
  }
  FrameHeader frame_of_view(std::uint16_t kind) const {
    auto header = frame(kind);
    header.view = job_.plan.view_hash;
    return header;
  }
  /// An honest partial for the victim, and its bytes.
  FrameHeader partial() const {
    auto topology = topology_of({"0", "1", "2"});
    auto plan = CrossingPlan::of_registered(stripes_for(kBytes, 1, 3), 0, kBytes);
    auto header = frame_of_view(kPartial);
    header.slot = 1;
    header.number = 1;
    for (const auto& at : plan.legs_of(0, 0))
      if (final_host(at.stripe, topology) == kVictim) header.index = at.number;
    return header;
  }
  void words(const FrameHeader& header, std::size_t bytes = 0) {
    std::vector<std::byte> text(bytes);
    roads_->streams().send_words(kVictim, header, text);
  }
  void data(const FrameHeader& header, std::size_t bytes, std::size_t lane = 0) {
    auto keep = std::make_shared<std::vector<std::byte>>(bytes);
    roads_->streams().send_data(kVictim, lane, header, *keep, keep);
  }
  /// As an honest worker would describe what it reduces.
  void describe() {
    Channel channel{};
    channel.shape = {.count = kBytes / 4};
    channel.chunks = channel.name_length = channel.region_length = 1;
    channel.name[0] = channel.region[0] = 'w';
    channel.region_bytes = kBytes;
    auto text = std::as_bytes(std::span(reinterpret_cast<const char*>(&channel), kDescription));
    roads_->streams().send_words(kVictim, frame_of_view(kAnnounce), text);
  }
  void letter(const wire::Message& message) {
    loop_.post([this, message] { roads_->send(kVictim, message); });
  }

 private:
  void note(int& count) {
    std::lock_guard lock(mutex_);
    ++count;
    changed_.notify_all();
  }
  void wait_for(const int& count, int target) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count >= target; });
  }

  Job& job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int connected_ = 0, described_ = 0;  // guarded by mutex_
  net::Loop loop_;
  std::unique_ptr<Roads> roads_;
  std::thread thread_;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * kPage;
}

/// All contribute ones: what `ranks` of them make.
void check_reduction(Group& group, int ranks) {
  auto region = group.create_region("after", kBytes).or_throw();
  auto* in = reinterpret_cast<float*>(region->input());
  std::fill_n(in, kBytes / 4, 1.0F);
  auto done = group.submit({.name = "after", .count = kBytes / 4, .region = region}).or_throw();
  group.wait(done).or_throw();
  const auto* out = static_cast<const float*>(done->result());
  EXPECT_EQ(std::count(out, out + kBytes / 4, static_cast<float>(ranks)), static_cast<std::ptrdiff_t>(kBytes / 4));
}

struct Outcome {
  Status first;            // how the victim's reduction with the hostile one ended
  std::size_t grown = 0;   // bytes of this process meanwhile
  bool came_back = false;  // the victim has let the hostile one in again
  std::string log;
};

/// Everybody reduces together; the hostile one attacks. The other two then go on without it.
Outcome survive(const std::function<void(Hostile&)>& attack, bool expect_loss = true) {
  Job job;
  auto child = spawn([&] {
    auto hostile = std::make_unique<Hostile>(job);
    attack(*hostile.release());
    for (;;) pause();
  });
  job.gates[kHostile].socket.reset();
  Outcome outcome;
  std::promise<void> lost;
  testing::internal::CaptureStderr();
  auto before = resident_bytes();
  auto work = [&](int rank) {
    Mesh mesh("test", job.plan.members[rank], std::move(job.plan.listeners[rank]), {}, job.hosts(rank));
    {
      auto group = Group::form(job.team(rank), &mesh).or_throw();
      auto region = group->create_region("w", kBytes).or_throw();
      auto done = group->submit({.name = "w", .count = kBytes / 4, .region = region}).or_throw();
      if (rank == kVictim) {
        if (!expect_loss) {
          std::this_thread::sleep_for(2s);
          group->fence({Code::aborted, "enough"});
        }
        outcome.first = group->wait(done);
        outcome.grown = std::max(resident_bytes(), before) - before;
        lost.set_value();
      } else {
        lost.get_future().wait();
        group->fence({Code::peer_lost, "as the others"});
        EXPECT_FALSE(group->wait(done).ok());
      }
    }
    auto next = Group::form(job.next_team(rank), &mesh).or_throw();
    check_reduction(*next, 2);
    if (rank == kVictim) {
      std::this_thread::sleep_for(3 * Roads::kRetry);  // it calls again and again
      outcome.came_back = mesh.reaches({job.plan.members[kHostile]});
    }
    next->exchange("done").or_throw();
    next->leave();
  };
  std::thread other([&] { work(kFriend); });
  work(kVictim);
  other.join();
  outcome.log = testing::internal::GetCapturedStderr();
  kill(child, SIGKILL);
  ended(child);
  return outcome;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMostGrowth = 1 << 30;  // a sanitizer keeps what was freed
#else
constexpr std::size_t kMostGrowth = 96 << 20;
#endif

void expect_left_behind(const std::function<void(Hostile&)>& attack, const std::string& rule) {
  auto outcome = survive(attack);
  ASSERT_FALSE(outcome.first.ok());
  EXPECT_EQ(outcome.first.error().code, Code::peer_lost) << outcome.first.error().message;
  EXPECT_NE(outcome.first.error().message.find("worker 1"), std::string::npos) << outcome.first.error().message;
  auto named = outcome.log.find("worker 1 has broken a rule: it sent ");
  EXPECT_NE(named, std::string::npos) << outcome.log;
  EXPECT_EQ(named, outcome.log.rfind("worker 1 has broken a rule")) << outcome.log;  // once
  EXPECT_NE(outcome.log.find(rule), std::string::npos) << outcome.log;
  EXPECT_LT(outcome.grown, kMostGrowth);
  EXPECT_FALSE(outcome.came_back);
}

TEST(HostileMember, APieceThatComesTwice) {
  expect_left_behind(
      [](Hostile& hostile) {
        for (int i = 0; i < 100; ++i)
          hostile.data(hostile.partial(), FrameHeader::kMostBytes, static_cast<std::size_t>(i));
      },
      "a second partial");
}

TEST(HostileMember, APieceOfAnotherSize) {
  expect_left_behind([](Hostile& hostile) { hostile.data(hostile.partial(), 4096); }, "a partial of 4096 bytes");
}

TEST(HostileMember, AMillionKeysThatNobodyKnows) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto header = hostile.partial();
        for (std::uint64_t i = 0; i < 1'000'000; ++i) {
          header.use = i + 1;
          hostile.data(header, i % 1000 == 0 ? FrameHeader::kMostBytes : 0, i);
        }
      },
      "has described 1");
}

TEST(HostileMember, ChunksFarAhead) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto header = hostile.partial();
        for (header.value = 1; header.value < 1000; ++header.value) hostile.data(header, FrameHeader::kMostBytes);
      },
      "1 may be on their way");
}

TEST(HostileMember, AResultThatIsNotItsToGive) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto header = hostile.partial();
        header.kind = kFinal;
        hostile.data(header, FrameHeader::kMostBytes);
      },
      "it sent a result");
}

TEST(HostileMember, ARowThatIsTooLong) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto row = hostile.frame_of_view(kRow);
        row.value = 1;
        hostile.words(row, 200'000);
      },
      "with 200000 bytes");
}

TEST(HostileMember, CountersThatJump) {
  expect_left_behind(
      [](Hostile& hostile) {
        hostile.words(Hostile::frame(101));  // a heartbeat is nothing bad
        hostile.describe();
        auto progress = hostile.frame_of_view(kProgress);
        progress.value = 1;
        hostile.words(progress);
        progress.value = 1'000'000;
        progress.slot = 1;
        hostile.words(progress);
      },
      "from 1 to 1000000");
}

TEST(HostileMember, AnIndexOutOfRange) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto header = hostile.partial();
        header.index = UINT32_MAX;
        hostile.data(header, FrameHeader::kMostBytes);
      },
      "does not carry");
}

TEST(HostileMember, KindsThatDoNotExist) {
  expect_left_behind([](Hostile& hostile) { hostile.words(hostile.frame_of_view(77), 10); }, "kind 77");
  expect_left_behind([](Hostile& hostile) { hostile.words(Hostile::frame(200), 10); }, "kind 200");
}

TEST(HostileMember, WhatIsNoFrame) {
  expect_left_behind(
      [](Hostile& hostile) {
        auto header = Hostile::frame(101);
        header.magic = 7;
        hostile.words(header);
      },
      "it sent something that is no frame");
}

TEST(HostileMember, LettersThatCannotBeReadOrAreNotForWorkers) {
  expect_left_behind([](Hostile& hostile) { hostile.words(Hostile::frame(100), 5000); },
                     "a letter that cannot be read");
  expect_left_behind([](Hostile& hostile) { hostile.letter(wire::Stop{}); }, "do not send each other");
  expect_left_behind(
      [](Hostile& hostile) {
        for (std::uint32_t i = 0; i < 1000; ++i)
          hostile.letter(wire::RegionNotice{1, "r" + std::to_string(i), 4096, 4096, 2, 1});
      },
      "do not send each other");
}

/// None of this breaks a rule that this layer knows: it is dropped, or kept within bounds.
TEST(HostileMember, ManyViewsThatNobodyIsIn) {
  auto outcome = survive(
      [](Hostile& hostile) {
        auto header = hostile.partial();
        for (header.view = 1; header.view < 20'000; ++header.view)
          hostile.data(header, header.view % 100 == 0 ? FrameHeader::kMostBytes : 100, header.view);
        wire::ViewNotice view;
        view.members.resize(100);
        for (view.epoch = 1; view.epoch < 3'000; ++view.epoch) hostile.letter(wire::Entered{view.epoch, view});
      },
      false);
  EXPECT_EQ(outcome.first.error().message, "enough");
  EXPECT_LT(outcome.grown, kMostGrowth);
}

}  // namespace
}  // namespace pliant::collective
