#include "net/futex.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

TEST(Futex, AnyOfSeveralWordsWakes) {
  for (int which = 0; which < 3; ++which) {
    std::array<std::atomic<std::uint32_t>, 3> words{};
    std::thread waker([&] {
      words[which].store(1);
      futex_wake(&words[which]);
    });
    while (words[which].load() == 0) {
      std::vector<FutexWord> waits;
      for (auto& word : words) waits.push_back({&word, 0});
      futex_wait_any(waits, 10s);  // returns at once if the word has changed already
    }
    waker.join();
  }
}

TEST(Futex, TheLimitEndsAWait) {
  std::atomic<std::uint32_t> word{5};
  FutexWord wait{&word, 5};
  futex_wait_any({&wait, 1}, 1ms);
  std::atomic<std::uint32_t> other{6};
  std::array<FutexWord, 2> waits{{{&word, 5}, {&other, 6}}};
  futex_wait_any(waits, 1ms);
  EXPECT_EQ(word.load(), 5U);
}

}  // namespace
}  // namespace pliant::net
