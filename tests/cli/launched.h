// Jobs of processes that something else than `pliant run` has started.
#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "cli/harness.h"

namespace pliant::cli_test {

class Launched : public CliTest {
 protected:
  /// Processes whose launcher was killed, because the test has failed, would train on.
  void TearDown() override {
    for (int rank : {0, 1, 2})
      if (read_all(fmt::format("/proc/{}/comm", pid_of(rank))) == "cli_worker\n") kill(pid_of(rank), SIGKILL);
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  std::string verdict() { return run({"verify", path("records")}).out; }
  void finish() const { std::ofstream(path("enough")) << ""; }
  /// What three workers do: each writes its pid, then they train until finish().
  Words training() const {
    Words script;
    for (int rank : {0, 1, 2}) {
      script.push_back(fmt::format("only={}", rank));
      script.push_back("pid=" + path(fmt::format("pid-{}", rank)));
    }
    for (const auto& word :
         {std::string("all"), "until=" + path("enough"), std::string("samples=500"), std::string("train=1000000")})
      script.push_back(word);
    return script;
  }
  Words recording() const { return {"PLIANT_RECORD=" + path("records"), "PLIANT_PATIENCE=90"}; }
  pid_t pid_of(int rank) const { return std::atoi(read_all(path(fmt::format("pid-{}", rank))).c_str()); }
  /// Waits until this worker has recorded so many more steps.
  bool goes_on(int rank, std::size_t steps = 20) const {
    auto recorded = [&] { return lines_in(read_all(path(fmt::format("records/worker-{}.jsonl", rank)))); };
    auto before = recorded();
    return eventually([&] { return recorded() >= before + steps; });
  }
  /// Waits until a worker says that it is this one of so many.
  static bool says(const Command& job, int rank, int size) {
    return eventually([&] { return job.out().find(fmt::format(": {} of {}\n", rank, size)) != std::string::npos; });
  }
  /// The same for all of them.
  static bool all_say(const Command& job, int size) {
    for (int rank = 0; rank < size; ++rank)
      if (!says(job, rank, size)) return false;
    return true;
  }
  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
  }
};

}  // namespace pliant::cli_test
