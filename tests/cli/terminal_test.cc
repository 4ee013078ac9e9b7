// The live status line, on a real pseudo terminal.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "base/fd.h"
#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Terminal : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    int master = -1;
    int slave = -1;
    winsize size{24, 100, 0, 0};
    ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
    master_ = Fd(master);
    slave_ = Fd(slave);
    fcntl(master, F_SETFD, FD_CLOEXEC);
    fcntl(slave, F_SETFD, FD_CLOEXEC);
    fcntl(master, F_SETFL, O_NONBLOCK);
  }
  /// All that the terminal has shown so far.
  const std::string& screen() {
    char buffer[4096];
    for (ssize_t size = 0; (size = read(master_.get(), buffer, sizeof(buffer))) > 0;)
      screen_.append(buffer, static_cast<std::size_t>(size));
    return screen_;
  }
  bool shows(const std::string& text) {
    return eventually([&] { return screen().find(text) != std::string::npos; });
  }
  Fd master_;
  Fd slave_;
  std::string screen_;
};

TEST_F(Terminal, TheStatusLineIsRedrawnInPlace) {
  auto probe = start_workers({"-n", "1", "--name", "probe"}, {"forever"});
  wait_for_workers("probe", 1);
  auto worker = read_json("probe").at("program").get<std::string>();
  run({"stop", "--force", "probe"});

  auto job = start({"run", "-n", "2", worker, "join", "only=0", "steps=40", "out=a line of output", "steps=40", "all",
                    "wait=" + path("go")},
                   {}, slave_.get());
  EXPECT_TRUE(shows("\r\033[Kstep ")) << screen_;
  EXPECT_TRUE(shows("epoch 2/2  1234 samples/s  loss 0.2500  2 workers  0:0")) << screen_;
  EXPECT_TRUE(shows("step 40/40")) << screen_;
  std::ofstream(path("go")) << "";
  EXPECT_TRUE(eventually([&] { return screen(), job.finished(); }));
  EXPECT_EQ(job.wait().status, 0);
  screen();

  // The output line stands alone: the status line was erased before it and drawn anew after it.
  auto line = screen_.find("[0] a line of output\r\n");
  ASSERT_NE(line, std::string::npos) << screen_;
  EXPECT_EQ(screen_.substr(line - 4, 4), "\r\033[K") << screen_;
  EXPECT_EQ(screen_.compare(line + 22, 4, "\r\033[K"), 0) << screen_;
  // At the end one plain line remains.
  auto last = screen_.rfind("\r\033[K");
  EXPECT_NE(screen_.find("is done: ", last), std::string::npos) << screen_;
  EXPECT_EQ(screen_.back(), '\n');
}

TEST_F(Terminal, PlainAndOffDoNotDraw) {
  for (const char* mode : {"plain", "off"}) {
    auto job = start({"run", "-n", "1", "--status", mode, "echo", "hello"}, {}, slave_.get());
    EXPECT_TRUE(eventually([&] { return screen(), job.finished(); }));
    screen();
    EXPECT_EQ(screen_.find('\033'), std::string::npos) << screen_;
    EXPECT_NE(screen_.find("[0] hello\r\n"), std::string::npos) << screen_;
    screen_.clear();
  }
}

TEST_F(Terminal, ALongPlanSaysHowFarItIsAndEndsWithCtrlC) {
  auto job = run_workers({"-n", "1", "--record", path("records")}, {"samples=500", "train=40"});
  ASSERT_EQ(job.status, 0) << job.err;
  auto plan = start({"plan", path("records"), "--samples", "1e15", "--sizes", "1", "--policy", "autoscale:max=1"}, {},
                    slave_.get());
  EXPECT_TRUE(shows("\r\033[Kplanning autoscale:max=1: 0.0 %")) << screen_;
  plan.signal(SIGINT);
  EXPECT_TRUE(eventually([&] { return plan.finished(); }));
}

}  // namespace
}  // namespace pliant::cli_test
