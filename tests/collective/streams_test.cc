#include "collective/streams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/fault.h"
#include "net/paired_keys.h"
#include "net/tcp_pair.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

/// Puts everything into one place.
struct Place final : FrameSink {
  std::vector<std::byte> bytes = std::vector<std::byte>(1000);
  std::promise<void> begun, complete;
  Result<std::byte*> place_for(std::uint64_t, const FrameHeader&, std::vector<std::byte>&) override {
    begun.set_value();
    return bytes.data();
  }
  Status on_frame(std::uint64_t, const FrameHeader&, std::byte*) override {
    complete.set_value();
    return {};
  }
};

void write_all(const Fd& socket, const void* data, std::size_t size) {
  ASSERT_EQ(::send(socket.get(), data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
}

FrameHeader header_of(std::uint64_t view) {
  FrameHeader header;
  header.kind = 1;
  header.bytes = 1000;
  header.view = view;
  return header;
}

TEST(Streams, ALaneThatIsDroppedWritesNothingAfterItsViewIsOver) {
  std::atomic<bool> armed{false};
  std::promise<void> about_to_read, go_on;
  auto released = go_on.get_future();
  fault::intercept([&](const char* point) {
    if (std::string_view(point) != "before_read" || !armed.exchange(false)) return;
    about_to_read.set_value();
    released.wait();
  });
  {
    Streams streams([](std::uint64_t, const std::string&) {});
    net::TcpPair old, other, next;
    Place ended, between, following;
    streams.subscribe(7, &ended);
    streams.subscribe(6, &between);
    streams.subscribe(8, &following);
    streams.add(1, 0, std::move(old.right));
    auto header = header_of(7);
    std::vector<char> data(1000, 'x');
    write_all(old.left, &header, sizeof(header));
    ASSERT_EQ(ended.begun.get_future().wait_for(60s), std::future_status::ready);
    // When the thread has come to another lane, it has done with this one.
    streams.add(3, 0, std::move(other.right));
    header = header_of(6);
    write_all(other.left, &header, sizeof(header));
    write_all(other.left, data.data(), data.size());
    ASSERT_EQ(between.complete.get_future().wait_for(60s), std::future_status::ready);
    armed = true;
    write_all(old.left, data.data(), data.size());
    ASSERT_EQ(about_to_read.get_future().wait_for(60s), std::future_status::ready);
    streams.drop(1);
    streams.unsubscribe(7);
    std::ranges::fill(ended.bytes, std::byte{7});  // from here on it may be anybody's memory
    go_on.set_value();
    streams.add(2, 0, std::move(next.right));  // the thread comes to this after the other one
    header = header_of(8);
    write_all(next.left, &header, sizeof(header));
    write_all(next.left, data.data(), data.size());
    ASSERT_EQ(following.complete.get_future().wait_for(60s), std::future_status::ready);
    EXPECT_EQ(std::ranges::count(ended.bytes, std::byte{7}), 1000);
  }
  fault::intercept({});
}

/// Keeps every frame.
class Collector final : public FrameSink {
 public:
  Result<std::byte*> place_for(std::uint64_t, const FrameHeader& header, std::vector<std::byte>&) override {
    begun_[header.index].resize(header.bytes);
    return begun_[header.index].data();
  }
  Status on_frame(std::uint64_t, const FrameHeader& header, std::byte*) override {
    std::lock_guard lock(mutex_);
    complete_[header.index] = std::move(begun_[header.index]);
    came_.notify_all();
    return {};
  }
  /// Waits for so many, and gives them by index.
  std::map<std::uint32_t, std::vector<std::byte>> wait_for(std::size_t frames) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, 60s, [&] { return complete_.size() == frames; }));
    return complete_;
  }

 private:
  std::map<std::uint32_t, std::vector<std::byte>> begun_;  // the streams' thread's
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::uint32_t, std::vector<std::byte>> complete_;
};

std::vector<std::byte> random_bytes(std::size_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Streams, SealedAndPlainLanesCarryFramesOfAnySize) {
  for (bool sealed : {true, false}) {
    Streams here([](std::uint64_t, const std::string&) {}), there([](std::uint64_t, const std::string&) {});
    Collector collector;
    there.subscribe(7, &collector);
    std::vector<net::TcpPair> pairs(2);
    for (std::uint32_t lane = 0; lane < pairs.size(); ++lane) {
      auto keys = [&](net::ConnectionKeys made) { return sealed ? std::optional(std::move(made)) : std::nullopt; };
      there.add(1, lane, std::move(pairs[lane].right), {}, keys(net::right_keys()));
      here.add(2, lane, std::move(pairs[lane].left), {}, keys(net::left_keys()));
    }
    std::mt19937 random(1);
    std::map<std::uint32_t, std::vector<std::byte>> sent;
    constexpr std::size_t kSizes[] = {0, 1, 63, 64, 4095, 4096, 4097, 65535, 65536, 65537, FrameHeader::kMostBytes};
    for (std::uint32_t index = 0; index < 300; ++index) {
      auto header = header_of(7);
      header.index = index;
      auto& bytes = sent[index] = random_bytes(kSizes[random() % std::size(kSizes)], random);
      if (random() % 2)
        here.send_words(2, header, bytes);
      else
        here.send_data(2, 0, header, bytes, nullptr);
    }
    EXPECT_EQ(collector.wait_for(sent.size()), sent) << (sealed ? "sealed" : "plain");
  }
}

/// What the other end hears of a lane whose bytes are these.
std::string loss_after(const std::vector<std::uint8_t>& bytes) {
  std::promise<std::string> lost;
  auto why = lost.get_future();
  Collector collector;
  Streams streams([&](std::uint64_t, const std::string& how) { lost.set_value(how); },
                  [](std::uint64_t, const std::string& how) { ADD_FAILURE() << "it is not to blame: " << how; });
  streams.subscribe(7, &collector);
  net::TcpPair pair;
  streams.add(1, 0, std::move(pair.right), {}, net::right_keys());
  write_all(pair.left, bytes.data(), bytes.size());
  EXPECT_EQ(why.wait_for(60s), std::future_status::ready);
  EXPECT_TRUE(collector.wait_for(0).empty());
  return why.get();
}

TEST(Streams, WhatIsNoRecordOfTheOtherEndLosesIt) {
  std::vector<std::uint8_t> frame(sizeof(FrameHeader) + 1000);
  auto header = header_of(7);
  std::memcpy(frame.data(), &header, sizeof(header));
  EXPECT_NE(loss_after(frame).find("a record of"), std::string::npos) << "a plain frame";
  auto altered = net::LeftSealer().record_of(frame);
  altered[500] ^= 1;
  EXPECT_NE(loss_after(altered).find("altered"), std::string::npos);
  net::LeftSealer later;
  (void)later.record_of(frame);
  EXPECT_NE(loss_after(later.record_of(frame)).find("altered"), std::string::npos) << "one was left out";
}

}  // namespace
}  // namespace pliant::collective
