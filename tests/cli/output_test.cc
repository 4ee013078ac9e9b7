// Where the workers' output goes.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Output : public CliTest {
 protected:
  Outcome run_mode(const std::string& mode) {
    return run({"run", "-n", "2", "--output", mode, "/bin/sh", "-c",
                "echo out $PLIANT_WORKER; echo err $PLIANT_WORKER >&2; printf 'open end'"});
  }
};

TEST_F(Output, PrefixMarksEveryLineOfEveryWorker) {
  auto seen = run_mode("prefix");
  for (const char* line : {"[0] out 0\n", "[1] out 1\n", "[0] open end\n", "[1] open end\n"})
    EXPECT_NE(seen.out.find(line), std::string::npos) << line << seen.out;
  EXPECT_EQ(lines_in(seen.out), 4u);
  EXPECT_NE(seen.err.find("[1] err 1\n"), std::string::npos) << seen.err;
}

TEST_F(Output, RawLeavesThemAsTheyAre) {
  auto seen = run_mode("raw");
  EXPECT_NE(seen.out.find("out 0\n"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find("out 1\n"), std::string::npos) << seen.out;
  EXPECT_EQ(seen.out.find("["), std::string::npos);
  EXPECT_EQ(lines_in(seen.out), 2u);
}

TEST_F(Output, Rank0IsOnlyRank0) {
  auto seen = run_mode("rank0");
  EXPECT_EQ(seen.out, "out 0\nopen end");
  EXPECT_EQ(seen.err, "err 0\n");
}

TEST_F(Output, QuietIsQuiet) {
  auto seen = run_mode("quiet");
  EXPECT_EQ(seen.out + seen.err, "");
}

TEST_F(Output, ADirectoryKeepsTheFiles) {
  auto seen = run({"run", "-n", "2", "--output", "quiet", "--output-dir", path("a/b"), "/bin/sh", "-c",
                   "echo out $PLIANT_WORKER; echo err $PLIANT_WORKER >&2"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(read_all(path("a/b/rank-1.out")), "out 1\n");
  EXPECT_EQ(read_all(path("a/b/rank-0.err")), "err 0\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Output, ADirectoryThatCannotBeMadeIsOneLine) {
  auto seen = run({"run", "--output-dir", "/proc/no", "true"});
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(lines_in(seen.err), 1u);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Output, NothingIsLostOrMixedWhenThereIsMuch) {
  auto seen = run({"run", "-n", "3", "/bin/sh", "-c", "seq 1 60000"});
  EXPECT_EQ(seen.status, 0);
  std::vector<int> next(3, 1);
  std::istringstream lines(seen.out);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_EQ(line.substr(0, 1), "[");
    auto rank = static_cast<std::size_t>(line[1] - '0');
    ASSERT_EQ(line, fmt::format("[{}] {}", rank, next.at(rank)++));
  }
  EXPECT_EQ(next, std::vector<int>(3, 60001));
}

TEST_F(Output, LinesOfAnyLengthStayWhole) {
  auto seen = run({"run", "-n", "2", "/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo"});
  EXPECT_EQ(seen.out.size(), 2u * (300000 + 5));
  EXPECT_EQ(lines_in(seen.out), 2u);
}

TEST_F(Output, ASlowReaderGetsAll) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  auto job = start({"run", "-n", "1", "--output", "raw", "/bin/sh", "-c", "yes 0123456 | head -c 800000"}, {}, pipe[1]);
  close(pipe[1]);
  std::size_t total = 0;
  char buffer[997];
  for (ssize_t size = 0; (size = read(pipe[0], buffer, sizeof(buffer))) > 0;) total += static_cast<std::size_t>(size);
  close(pipe[0]);
  EXPECT_EQ(job.wait().status, 0);
  EXPECT_EQ(total, 800000u);
}

TEST_F(Output, ProgressIsTold) {
  auto seen = run_workers({"-n", "2", "--name", "teller"}, {"join", "steps=8"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_NE(seen.err.find("pliant: job 'teller' is done: "), std::string::npos) << seen.err;
  EXPECT_NE(seen.err.find("step 8/8"), std::string::npos) << seen.err;
  EXPECT_EQ(run_workers({"-n", "2", "--status", "off"}, {"join", "steps=8"}).err, "");
}

}  // namespace
}  // namespace pliant::cli_test
