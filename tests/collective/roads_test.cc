#include "collective/roads.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <thread>

#include "net/tcp.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

/// A worker's end of the roads, on a thread of its own.
class Place {
 public:
  explicit Place(std::uint64_t id, const net::Secret& secret, const std::string& job = "job")
      : id_(id), gate_(net::tcp_listen("127.0.0.1", {}).or_throw()), endpoint_(gate_.endpoint.text()) {
    RoadEvents events;
    events.on_connected = [this](std::uint64_t peer) { note([&] { connected_.insert(peer); }); };
    events.on_lost = [this](std::uint64_t peer, const std::string& how) {
      note([&] {
        connected_.erase(peer);
        lost_.emplace_back(peer, how);
      });
    };
    events.on_letter = [this](std::uint64_t from, wire::Message message) {
      note([&] { letters_.emplace_back(from, std::move(message)); });
    };
    HostsOptions options{secret, std::move(gate_.socket), ""};
    options.most_unexpected = 2;
    roads_ = std::make_unique<Roads>(loop_, job, id, std::move(options), std::move(events));
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Place() { end(); }
  void end() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    roads_.reset();
  }

  wire::Member member() const { return {id_, 1, "@nowhere", "host" + std::to_string(id_), endpoint_}; }
  void on_loop(const std::function<void(Roads&)>& task) {
    loop_.post([this, task] { task(*roads_); });
  }
  void expect(const Place& other) {
    on_loop([member = other.member()](Roads& roads) { roads.expect(member); });
  }
  template <class Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, condition);
  }
  bool wait_connected(std::uint64_t peer) {
    return wait([&] { return connected_.contains(peer); });
  }
  /// It is connected now, or within so long.
  bool wait_connected_for(std::uint64_t peer, std::chrono::milliseconds how_long) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, how_long, [&] { return connected_.contains(peer); });
  }
  bool wait_lost(std::uint64_t peer) {
    return wait([&] { return std::ranges::any_of(lost_, [&](const auto& loss) { return loss.first == peer; }); });
  }

  std::vector<std::pair<std::uint64_t, std::string>> lost_;       // guarded by mutex_ while it runs
  std::vector<std::pair<std::uint64_t, wire::Message>> letters_;  // guarded by mutex_ while it runs

 private:
  template <class Change>
  void note(const Change& change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  const std::uint64_t id_;
  net::Listener gate_;
  const std::string endpoint_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> connected_;
  net::Loop loop_;
  std::unique_ptr<Roads> roads_;
  std::thread thread_;
};

TEST(Roads, AreMadeFromTheHigherIdAndCarryLettersBothWays) {
  auto secret = net::Secret::random();
  Place low(1, secret), high(2, secret);
  low.expect(high);
  high.expect(low);
  ASSERT_TRUE(low.wait_connected(2) && high.wait_connected(1));
  low.on_loop([](Roads& roads) { roads.send(2, wire::Claim{7, 1}); });
  high.on_loop([](Roads& roads) { roads.send(1, wire::Stored{7, 9}); });
  ASSERT_TRUE(low.wait([&] { return low.letters_.size() == 1; }));
  ASSERT_TRUE(high.wait([&] { return high.letters_.size() == 1; }));
  EXPECT_EQ(std::get<wire::Claim>(high.letters_[0].second).term, 7U);
  EXPECT_EQ(std::get<wire::Stored>(low.letters_[0].second).hash, 9U);
}

TEST(Roads, AnEndIsNoticedAndWhoComesAgainIsFoundAgain) {
  auto secret = net::Secret::random();
  Place low(1, secret);
  {
    Place high(2, secret);
    low.expect(high);
    high.expect(low);
    ASSERT_TRUE(low.wait_connected(2));
  }
  ASSERT_TRUE(low.wait_lost(2));
  Place again(2, secret);
  again.expect(low);
  EXPECT_TRUE(again.wait_connected(1) && low.wait_connected(2));
}

TEST(Roads, WhoCallsKeepsCalling) {
  auto secret = net::Secret::random();
  Place high(2, secret);
  auto low = std::make_unique<Place>(1, secret);
  high.expect(*low);
  ASSERT_TRUE(high.wait_connected(1));
  auto endpoint = net::parse_endpoint(low->member().endpoint).or_throw();
  low.reset();
  ASSERT_TRUE(high.wait_lost(1));
  auto listener = net::tcp_listen(endpoint.address, {endpoint.port, endpoint.port});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  pollfd ready{listener.value().socket.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 20'000), 1) << "nobody called again";
}

TEST(Roads, WhoSaysNothingAnyMoreIsLostAlthoughItsConnectionsStand) {
  auto secret = net::Secret::random();
  Place low(1, secret), high(2, secret);
  low.expect(high);
  high.expect(low);
  ASSERT_TRUE(low.wait_connected(2) && high.wait_connected(1));
  std::promise<void> wake;
  high.on_loop([sleep = wake.get_future().share()](Roads&) { sleep.wait(); });  // its heart stops
  ASSERT_TRUE(low.wait_lost(2));
  EXPECT_NE(low.lost_[0].second.find("silent for too long"), std::string::npos) << low.lost_[0].second;
  wake.set_value();
}

TEST(Roads, WhoIsExpectedAndNeverComesIsLost) {
  auto secret = net::Secret::random();
  Place low(1, secret);
  low.on_loop([](Roads& roads) { roads.expect({2, 1, "@nowhere", "host2", "127.0.0.1:1"}); });
  ASSERT_TRUE(low.wait_lost(2));
  EXPECT_NE(low.lost_[0].second.find("could not be reached"), std::string::npos);
}

TEST(Roads, AnotherSecretOrJobDoesNotGetIn) {
  auto secret = net::Secret::random();
  Place low(1, secret), stranger(2, net::Secret::random()), elsewhere(3, secret, "another"), friendly(4, secret);
  for (auto* place : {&stranger, &elsewhere, &friendly}) place->expect(low);
  ASSERT_TRUE(low.wait_connected(4) && friendly.wait_connected(1));
  EXPECT_TRUE(stranger.wait_lost(1) && elsewhere.wait_lost(1));
  EXPECT_TRUE(low.wait([&] { return low.lost_.empty(); }));
}

TEST(Roads, WhoeverBreaksARuleIsLostOnceAndForAll) {
  auto secret = net::Secret::random();
  Place low(1, secret), high(2, secret);
  low.expect(high);
  high.expect(low);
  ASSERT_TRUE(low.wait_connected(2) && high.wait_connected(1));
  low.on_loop([](Roads& roads) { roads.leave_behind(2, "nonsense"); });
  ASSERT_TRUE(low.wait_lost(2) && high.wait_lost(1));
  EXPECT_EQ(low.lost_[0].second, "it has broken a rule: it sent nonsense");
  auto again = high.member();
  again.pid = 77;  // nor as another process
  low.on_loop([again](Roads& roads) { roads.expect(again); });
  EXPECT_TRUE(low.wait([&] { return low.lost_.size() == 2; }));
  EXPECT_FALSE(low.wait_connected_for(2, 4 * Roads::kRetry));
}

TEST(Roads, OnlySoManyOfWhomNobodyHasToldGetIn) {
  auto secret = net::Secret::random();
  Place low(1, secret), known(9, secret);
  std::vector<std::unique_ptr<Place>> unknown;
  for (std::uint64_t id = 2; id < 4; ++id) {
    unknown.push_back(std::make_unique<Place>(id, secret));
    unknown.back()->expect(low);
    ASSERT_TRUE(low.wait_connected(id));
  }
  Place one_more(4, secret), nobody(UINT64_MAX, secret);
  one_more.expect(low);
  nobody.expect(low);
  low.expect(known);
  known.expect(low);
  EXPECT_TRUE(low.wait_connected(9));
  EXPECT_TRUE(one_more.wait_lost(1) && nobody.wait_lost(1));
  EXPECT_FALSE(low.wait_connected_for(4, 2 * Roads::kRetry));
}

TEST(Roads, LettersThatNobodyReadsAreBounded) {
  auto secret = net::Secret::random();
  Place low(1, secret), high(2, secret);
  low.expect(high);
  high.expect(low);
  ASSERT_TRUE(low.wait_connected(2) && high.wait_connected(1));
  std::promise<void> wake;
  low.on_loop([sleep = wake.get_future().share()](Roads&) { sleep.wait(); });
  high.on_loop([](Roads& roads) {
    wire::ViewNotice view;
    view.members.resize(wire::kMaxMembers, {1, 1, std::string(60, 'a'), std::string(90, 'h'), std::string(60, 'e')});
    for (std::size_t bytes = 0; bytes < Unread::kMost + (8 << 20); bytes += 120'000)
      roads.send(1, wire::InForce{1, view});
  });
  ASSERT_TRUE(high.wait_lost(1));
  wake.set_value();
  ASSERT_TRUE(low.wait_lost(2));
  EXPECT_NE(low.lost_[0].second.find("letters of more than"), std::string::npos) << low.lost_[0].second;
}

}  // namespace
}  // namespace pliant::collective
