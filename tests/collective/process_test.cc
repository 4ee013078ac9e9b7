// The group with real processes: kill -9, strangers on sockets, and a stopped process that comes back too late.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "collective/team.h"

namespace pliant::collective {
namespace {

/// Words that the test and its children share.
struct Board {
  std::atomic<int> reached[16];
  std::atomic<int> failures;
};

Board* make_board() {
  void* at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (at) Board();
}

void until(const std::function<bool()>& condition) {
  while (!condition()) usleep(500);
}

void reduce_once(Group& group, const std::shared_ptr<Region>& region, float value) {
  auto* in = reinterpret_cast<float*>(region->input());
  auto count = region->bytes() / 4;
  for (std::size_t i = 0; i < count; i += 512) in[i] = value;
  auto operation = group.submit({.name = "g", .count = count, .region = region}).or_throw();
  group.wait(operation).or_throw();
}

TEST(Processes, TheOthersNoticeAKillInMidCollective) {
  for (int victim : {0, 1, 2}) {
    auto* board = make_board();
    TeamPlan plan(3);
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank)
      children.push_back(spawn([&, rank] {
        auto group = plan.form(rank);
        auto region = group->create_region("r", 8 << 20).or_throw();
        try {
          for (;; ++board->reached[rank]) reduce_once(*group, region, 1);
        } catch (const Failure& failure) {
          EXPECT_EQ(failure.code(), Code::peer_lost);
          EXPECT_NE(std::string(failure.what()).find("rank "), std::string::npos) << failure.what();
          ++board->failures;
        }
      }));
    plan.listeners.clear();
    until([&] { return board->reached[0] > 5 && board->reached[1] > 5 && board->reached[2] > 5; });
    kill(children[victim], SIGKILL);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ended(children[rank]), rank == victim ? 128 + SIGKILL : 0);
    EXPECT_EQ(board->failures, 2);
    munmap(board, sizeof(Board));
  }
}

TEST(Processes, NothingIsLeftBehindByAKill) {
  auto count_shm = [] {
    auto files = std::filesystem::directory_iterator("/dev/shm");
    return std::distance(begin(files), end(files));
  };
  auto before = count_shm();
  auto* board = make_board();
  TeamPlan plan(2);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank)
    children.push_back(spawn([&, rank] {
      auto group = plan.form(rank);
      auto region = group->create_region("r", 1 << 20).or_throw();
      for (;; ++board->reached[rank]) reduce_once(*group, region, 1);
    }));
  plan.listeners.clear();
  until([&] { return board->reached[0] > 2 && board->reached[1] > 2; });
  for (auto child : children) kill(child, SIGKILL);
  for (auto child : children) ended(child);
  EXPECT_EQ(count_shm(), before);
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    for (const auto& member : plan.members) EXPECT_EQ(line.find(member.address), std::string::npos) << line;
  munmap(board, sizeof(Board));
}

TEST(Processes, AFencedProcessThatContinuesChangesNothing) {
  auto* board = make_board();
  TeamPlan old_view(3);
  TeamPlan new_view(2);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(spawn([&, rank] {
      auto group = old_view.form(rank);
      auto region = group->create_region("r", 4 << 20).or_throw();
      if (rank == 2) {
        // Takes part until it is told that it is out; then writes as fast as it can into all that it may write.
        std::thread told([&] {
          until([&] { return board->reached[7] != 0; });
          group->fence({Code::aborted, "told so"});
        });
        EXPECT_THROW(for (;; ++board->reached[2]) reduce_once(*group, region, 1000), Failure);
        told.join();
        auto* mine = reinterpret_cast<float*>(region->input());
        for (;; ++board->reached[3])
          for (std::size_t i = 0; i < region->bytes() / 4; ++i) mine[i] = -1;
      }
      std::thread detector([&] {
        until([&] { return board->reached[4] != 0; });
        group->fence({Code::aborted, "rank 2 is suspected"});
      });
      EXPECT_THROW(for (;; ++board->reached[rank]) reduce_once(*group, region, 1), Failure);
      detector.join();
      // The recovery view: fresh segments, without the suspect. The old group stays mapped, as a careless user would.
      auto next = new_view.form(rank);
      auto fresh = next->create_region("r", 4 << 20).or_throw();
      auto* in = reinterpret_cast<float*>(fresh->input());
      auto count = fresh->bytes() / 4;
      auto check = [&](int rounds) {
        for (int round = 0; round < rounds; ++round) {
          for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(round + rank);
          auto operation = next->submit({.name = "g", .count = count, .region = fresh}).or_throw();
          next->wait(operation).or_throw();
          const auto* out = static_cast<const float*>(operation->result());
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 2 * round + 1) << i;
        }
      };
      check(3);
      ++board->reached[5];
      until([&] { return board->reached[6] != 0; });  // the suspect runs again
      check(20);
      next->leave();
    }));
  old_view.listeners.clear();
  new_view.listeners.clear();
  until([&] { return board->reached[0] > 3 && board->reached[1] > 3 && board->reached[2] > 3; });
  kill(children[2], SIGSTOP);
  board->reached[4] = 1;
  until([&] { return board->reached[5] == 2; });
  board->reached[7] = 1;
  kill(children[2], SIGCONT);
  until([&] { return board->reached[3] > 1; });
  board->reached[6] = 1;
  EXPECT_EQ(ended(children[0]), 0);
  EXPECT_EQ(ended(children[1]), 0);
  kill(children[2], SIGKILL);
  ended(children[2]);
  munmap(board, sizeof(Board));
}

TEST(Processes, StrangersBytesDoNotHarm) {
  auto* board = make_board();
  TeamPlan plan(2);
  auto addresses = plan.members;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank)
    children.push_back(spawn([&, rank] {
      if (rank == 1) until([&] { return board->reached[4] != 0; });  // strangers come first
      auto group = plan.form(rank);
      auto region = group->create_region("r", 1 << 20).or_throw();
      for (; board->reached[rank] < 60; ++board->reached[rank]) {
        reduce_once(*group, region, 1);
        group->exchange("row").or_throw();
      }
      until([&] { return board->reached[5] != 0; });
      group->leave();
    }));
  plan.listeners.clear();
  for (int i = 0; i < 300; ++i) {
    auto socket = net::connect_to(addresses[0].address);
    if (!socket.ok()) continue;
    if (i % 3 == 0) {
      char noise[64];
      for (char& c : noise) c = static_cast<char>(random_u64());
      [[maybe_unused]] auto n = ::send(socket.value().get(), noise, sizeof(noise), MSG_NOSIGNAL);
    } else if (i % 3 == 1) {
      (void)net::send(socket.value(), wire::PeerHello{"another job", 1});
    }
    if (i == 100) board->reached[4] = 1;
  }
  board->reached[5] = 1;
  EXPECT_EQ(ended(children[0]), 0);
  EXPECT_EQ(ended(children[1]), 0);
  munmap(board, sizeof(Board));
}

}  // namespace
}  // namespace pliant::collective
