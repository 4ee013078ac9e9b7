// Processes that find each other: real ones, with real sockets and files.
#include "session/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "collective/team.h"
#include "net/gate.h"
#include "net/line.h"
#include "record/records.h"
#include "session/rendezvous_note.h"
#include "session/runtime.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
using record::Folder;
namespace fs = std::filesystem;

/// What a process makes of its meeting, as a line.
using Body = std::function<std::string(const Launch& launch, Meeting meeting)>;

std::string seen(const Launch& launch, const Meeting& meeting) {
  const auto& view = meeting.view;
  return fmt::format("view {:016x} of {}, seed {}, rank {} pid {}{}", view.hash(), view.size(), view.seed,
                     view.rank_of(std::uint64_t(launch.rank)),
                     view.members[std::size_t(launch.rank)].pid == getpid() ? "mine" : "another's",
                     meeting.hosts ? ", between hosts" : "");
}

/// A few steps of training, after which all have counted the same.
std::string train(const Launch& launch, Meeting meeting) {
  if (meeting.hosts) meeting.hosts->silence = 60s;  // a crowded machine is no reason to lose anybody
  auto runtime =
      Runtime::form(launch.job, meeting.view, launch.rank, std::move(meeting.listener), std::move(meeting.hosts))
          .or_throw();
  std::vector<float> state(8, 0);
  runtime->replicas().add("state", state_of(std::span(state)));
  runtime->start({.steps = 20});
  float sum = 0;
  while (runtime->begin_step()) {
    float one = 1;
    runtime->wait(runtime->submit({.name = "one", .op = Op::sum, .count = 1, .in = &one, .out = &one}));
    sum = one;
    runtime->end_step();
  }
  runtime->leave();
  return fmt::format("{} steps, {} workers", runtime->step(), sum);
}

class Rendezvous : public ::testing::Test {
 protected:
  struct Process {
    pid_t pid;
    std::string file;
  };

  void TearDown() override {
    for (auto& [rank, process] : processes_) {
      kill(process.pid, SIGKILL);
      collective::ended(process.pid);
    }
  }

  MeetOptions options() const {
    MeetOptions options;
    options.dir = folder_.file("notes");
    options.interface_name = "lo";
    options.build = "this";
    return options;
  }
  std::string note() const { return folder_.file("notes/launch-job"); }
  bool note_is_there() const { return fs::exists(note()); }

  /// As one of `size` processes; `body` follows the meeting.
  void start(int rank, int size, const MeetOptions& options, const Body& body = seen) {
    Launch launch{"test", "job", rank, size};
    auto file = folder_.file(fmt::format("said-{}", rank));
    auto pid = collective::spawn([&] {
      auto met = meet(launch, options);
      auto text = met.ok() ? body(launch, std::move(met).value())
                           : fmt::format("{}: {}", name_of(met.error().code), met.error().message);
      std::ofstream(file) << text;
    });
    processes_.emplace(rank, Process{pid, file});
  }
  /// Waits for its end. What it made of the meeting, or its exit status.
  std::string said(int rank) {
    auto process = processes_.extract(rank).mapped();
    if (auto status = collective::ended(process.pid); status != 0) return fmt::format("status {}", status);
    std::ostringstream text;
    text << std::ifstream(process.file).rdbuf();
    return text.str();
  }
  void await_note() const {
    while (!note_is_there()) usleep(1000);
  }

  Folder folder_;
  std::map<int, Process> processes_;
};

TEST_F(Rendezvous, AllGetTheSameViewAndNoNoteIsLeft) {
  auto mine = options();
  mine.seed = 7;
  start(0, 5, mine);
  for (int rank : {3, 1, 4, 2}) start(rank, 5, options());
  auto first = said(0);
  EXPECT_NE(first.find(" of 5, seed 7, rank 0 pid mine"), std::string::npos) << first;
  EXPECT_EQ(first.find("between hosts"), std::string::npos) << first;
  for (int rank : {1, 2, 3, 4}) {
    auto text = said(rank);
    EXPECT_EQ(text.substr(0, 22), first.substr(0, 22)) << text;
    EXPECT_NE(text.find(fmt::format(", seed 7, rank {} pid mine", rank)), std::string::npos) << text;
  }
  EXPECT_TRUE(fs::is_empty(options().dir));
}

TEST_F(Rendezvous, TheNoteAndItsDirectoryAreNobodyElses) {
  auto mask = umask(0);
  start(0, 2, options());
  umask(mask);
  await_note();
  struct stat about {};
  ASSERT_EQ(stat(note().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  ASSERT_EQ(stat(options().dir.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  start(1, 2, options());
  EXPECT_EQ(said(0).find("view "), 0U);
  EXPECT_EQ(said(1).find("view "), 0U);
}

TEST_F(Rendezvous, WhoComesLateIsAwaitedAndWhoComesFirstWaits) {
  start(2, 3, options());
  start(0, 3, options());
  await_note();
  usleep(200'000);
  start(1, 3, options());
  for (int rank : {0, 1, 2}) EXPECT_EQ(said(rank).find("view "), 0U);
}

TEST_F(Rendezvous, WhoIsMissingIsNamedToAll) {
  auto hasty = options();
  hasty.patience = 3s;  // long enough for those who are waiting already
  for (int rank : {1, 2, 4}) start(rank, 6, options());
  start(0, 6, hasty);
  EXPECT_EQ(said(0), "not_found: 4 of 6 processes came within 3 s: missing ranks 3, 5");
  for (int rank : {1, 2, 4}) EXPECT_EQ(said(rank), "refused: 4 of 6 processes came within 3 s: missing ranks 3, 5");
  EXPECT_FALSE(note_is_there());
}

TEST_F(Rendezvous, WithoutRankZeroTheOthersSayWhereTheyLooked) {
  auto hasty = options();
  hasty.patience = 100ms;
  start(1, 2, hasty);
  auto text = said(1);
  EXPECT_NE(text.find("rank 0 was not found within 0.1 s: there is no " + note()), std::string::npos) << text;
}

TEST_F(Rendezvous, AStaleNoteIsReplaced) {
  auto path = note_path(options().dir, "job").or_throw();
  auto gone = net::tcp_listen("127.0.0.1", {}).or_throw().endpoint;
  auto stale = PostedNote::post(path, {gone, net::Secret::random()}).or_throw();
  start(1, 2, options());
  usleep(100'000);  // it may have tried
  start(0, 2, options());
  for (int rank : {0, 1}) EXPECT_EQ(said(rank).find("view "), 0U);
  EXPECT_FALSE(note_is_there());
}

TEST_F(Rendezvous, AStaleNoteThatLeadsToStrangersIsReplacedToo) {
  auto path = note_path(options().dir, "job").or_throw();
  auto strangers = net::tcp_listen("127.0.0.1", {}).or_throw();  // connects, and never says a word
  auto stale = PostedNote::post(path, {strangers.endpoint, net::Secret::random()}).or_throw();
  start(1, 2, options());
  std::optional<Fd> caller;
  while (!caller) caller = net::tcp_accept(strangers.socket).or_throw();
  start(0, 2, options());
  for (int rank : {0, 1}) EXPECT_EQ(said(rank).find("view "), 0U);
}

TEST_F(Rendezvous, ANoteThatOthersCanReadIsRefused) {
  auto path = note_path(options().dir, "job").or_throw();
  auto posted = PostedNote::post(path, {{"127.0.0.1", 1}, net::Secret::random()}).or_throw();
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  start(1, 2, options());
  auto text = said(1);
  EXPECT_EQ(text.find("refused: "), 0U) << text;
  EXPECT_NE(text.find("is open to other users"), std::string::npos) << text;
}

TEST_F(Rendezvous, WhatIsNoNoteIsSaidWithoutShowingIt) {
  auto path = note_path(options().dir, "job").or_throw();
  auto secret = net::Secret::random().text();
  for (const auto& text : {std::string("hello\n"), "127.0.0.1:1\n" + secret + "0\n", "127.0.0.1\n" + secret + "\n",
                           secret, "127.0.0.1:1\n" + secret + std::string(300, '\n')}) {
    std::ofstream(path) << text;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    auto note = read_note(path);
    ASSERT_FALSE(note.ok()) << text;
    EXPECT_NE(note.error().code, Code::not_found);
    EXPECT_EQ(note.error().message.find(secret.substr(0, 8)), std::string::npos) << note.error().message;
  }
}

TEST_F(Rendezvous, NobodyComesInWithoutTheSecret) {
  start(0, 2, options());
  await_note();
  auto real = read_note(note()).or_throw();
  net::Loop loop;
  std::string why;
  net::Call call(loop, real.endpoint, "", net::Secret::random(), {net::Purpose::coordinator, "job", 1, 0, 0, 0},
                 [&](Result<net::Guest> guest) {
                   why = guest.ok() ? "came in" : guest.error().message;
                   loop.stop();
                 });
  loop.run();
  EXPECT_NE(why.find(real.endpoint.text()), std::string::npos) << why;
  start(1, 2, options());
  for (int rank : {0, 1}) EXPECT_EQ(said(rank).find("view "), 0U);
}

TEST_F(Rendezvous, BuildsAndCpuLevelsMustAgree) {
  for (bool build : {true, false}) {
    auto other = options();
    if (build)
      other.build = "that";
    else
      other.cpu_level = 2;
    start(0, 3, options());
    start(1, 3, options());
    start(2, 3, other);
    std::string why = build ? "rank 2 was built as 'that', rank 0 as 'this'"
                            : "rank 2 runs at CPU level 2, rank 0 at 0: their sums would differ";
    EXPECT_EQ(said(0), "mismatch: " + why);
    EXPECT_EQ(said(2), "refused: " + why);
    kill(processes_.at(1).pid, SIGKILL);  // told if it was there in time, else it would wait for another rank 0
    said(1);
  }
}

TEST_F(Rendezvous, WhoDiesBeforeAllAreThereEndsTheMeeting) {
  start(0, 3, options());
  await_note();
  auto note_of_rank_0 = read_note(note()).or_throw();
  {
    net::Loop loop;
    net::Call call(loop, note_of_rank_0.endpoint, "", note_of_rank_0.secret,
                   {net::Purpose::coordinator, "job", 2, 0, 0, 0}, [&](const Result<net::Guest>&) { loop.stop(); });
    loop.run();
  }  // hangs up
  EXPECT_EQ(said(0), "peer_lost: rank 2 ended before all were there");
}

/// Rank 0, played by the test: takes one in, and hangs up.
TEST_F(Rendezvous, TheEndOfRankZeroIsNoticed) {
  auto secret = net::Secret::random();
  auto door = net::tcp_listen("127.0.0.1", {}).or_throw();
  auto posted = PostedNote::post(note_path(options().dir, "job").or_throw(), {door.endpoint, secret}).or_throw();
  start(1, 3, options());
  net::Loop loop;
  net::Line line;
  net::Gate gate(loop, std::move(door.socket), secret, "job", [&](net::Guest guest) {
    line = net::Line::remote(std::move(guest.socket), std::move(guest.rest), std::move(guest.keys));
    loop.stop();
  });
  loop.run();
  std::optional<net::Received> received;
  while (!received) received = line.receive().or_throw();
  const auto& join = std::get<wire::Join>(received->message);
  EXPECT_EQ(join.id, 1U);
  EXPECT_EQ(join.pid, processes_.at(1).pid);
  ASSERT_TRUE(line.try_send(wire::Answer{1, ""}).or_throw());
  line.close();
  auto text = said(1);
  EXPECT_EQ(text.find("peer_lost: rank 0 ended before all were there"), 0U) << text;
}

TEST_F(Rendezvous, ARankThatIsThereTwiceIsToldSo) {
  start(0, 3, options());
  start(1, 3, options());
  await_note();
  auto path = folder_.file("second");
  auto second = collective::spawn([&] {
    auto met = meet({"test", "job", 1, 3}, options());
    std::ofstream(path) << (met.ok() ? "met" : met.error().message);
  });
  // Of the two, one gets the seat. The other one ends now.
  int ended_first = 0;
  pid_t first = processes_.at(1).pid;
  while (ended_first != first && ended_first != second) {
    int status = 0;
    if (waitpid(first, &status, WNOHANG) == first) ended_first = first;
    if (waitpid(second, &status, WNOHANG) == second) ended_first = second;
    usleep(1000);
  }
  std::ostringstream text;
  text << std::ifstream(ended_first == second ? path : processes_.at(1).file).rdbuf();
  EXPECT_NE(text.str().find("rank 1 is there already: is job 'job' run twice?"), std::string::npos) << text.str();
  if (ended_first == first) processes_.erase(1);
  start(2, 3, options());
  EXPECT_EQ(said(0).find("view "), 0U);
  EXPECT_EQ(said(2).find("view "), 0U);
  auto status = ended_first == first ? collective::ended(second) : 0;
  EXPECT_EQ(status, 0);
}

TEST_F(Rendezvous, ProcessesOfOneHostTrain) {
  for (int rank : {0, 1, 2}) start(rank, 3, options(), train);
  for (int rank : {0, 1, 2}) EXPECT_EQ(said(rank), "20 steps, 3 workers");
}

TEST_F(Rendezvous, ProcessesOfTwoHostsTrainOverTcp) {
  for (int rank : {0, 1, 2, 3}) {
    auto there = options();
    there.host = rank < 2 ? "a" : "b";
    start(rank, 4, there, [](const Launch& launch, Meeting meeting) {
      auto how = seen(launch, meeting);
      if (how.find("between hosts") == std::string::npos) return how;
      return train(launch, std::move(meeting));
    });
  }
  for (int rank : {0, 1, 2, 3}) EXPECT_EQ(said(rank), "20 steps, 4 workers");
}

TEST_F(Rendezvous, AHostThatIsReachedOnlyFromItselfIsNamed) {
  auto there = options();
  there.host = "b";
  std::string address;
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    auto found = net::address_of_interface(entry.path().filename());
    if (!found.ok() || net::is_loopback(found.value()) || !net::tcp_listen(found.value(), {}).ok()) continue;
    there.interface_name = entry.path().filename();
    address = found.value();
  }
  if (address.empty()) GTEST_SKIP() << "there is no network but loopback";
  start(0, 2, options());
  start(1, 2, there);
  auto text = said(0);
  EXPECT_EQ(text.find("invalid: rank 1 on b is reached at "), 0U) << text;
  EXPECT_NE(text.find(address), std::string::npos) << text;
  EXPECT_NE(text.find("PLIANT_INTERFACE names the network that all hosts share"), std::string::npos) << text;
  EXPECT_EQ(said(1).find("refused: rank 1 on b"), 0U);
}

TEST_F(Rendezvous, WhoDiesBetweenMeetingAndTrainingIsSurvived) {
  for (int victim : {0, 1, 2}) {
    for (int rank : {0, 1, 2})
      start(rank, 3, options(), [victim](const Launch& launch, Meeting meeting) {
        if (launch.rank == victim) kill(getpid(), SIGKILL);
        return train(launch, std::move(meeting));
      });
    for (int rank : {0, 1, 2}) EXPECT_EQ(said(rank), rank == victim ? "status 137" : "20 steps, 2 workers");
  }
}

TEST_F(Rendezvous, AnInterfaceThatIsNotThereIsAnError) {
  auto wrong = options();
  wrong.interface_name = "nothing0";
  auto met = meet({"test", "job", 0, 2}, wrong);
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find("no interface 'nothing0'"), std::string::npos) << met.error().message;
}

}  // namespace
}  // namespace pliant::session
