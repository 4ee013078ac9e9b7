#include "collective/streams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <thread>

#include "base/fault.h"
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

}  // namespace
}  // namespace pliant::collective
