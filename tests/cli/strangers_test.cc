// Strangers at the coordinator's socket: nothing they send may harm the job.
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "cli/harness.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::cli_test {
namespace {

using namespace std::chrono_literals;

class Strangers : public CliTest {
 protected:
  /// A job of two: worker 0 has joined and waits for the view, worker 1 joins once it is allowed to.
  Command start_half() {
    auto job = start_workers({"-n", "2", "--name", "door"},
                             {"only=1", "wait=" + path("go"), "all", "join", "steps=5", "out=fine"});
    wait_for_workers("door", 2);
    return job;
  }
  void expect_unharmed(Command& job) {
    std::ofstream(path("go")) << "";
    auto seen = job.wait();
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_EQ(lines_in(seen.out), 2u) << seen.out;
  }
  nlohmann::json read_json_when_there(const std::string& name) {
    wait_for_workers(name, 2);
    return read_json(name);
  }
  std::string address() const { return base() + "/door/coordinator.sock"; }
  Fd connect() { return net::connect_to(address()).or_throw(); }
  /// What the coordinator answers to a request: its refusal.
  std::string refusal_of(const wire::Message& message) {
    auto socket = connect();
    net::send(socket, message).or_throw();
    auto answer = net::receive_within(socket, 60s);
    if (!answer.ok()) return "closed: " + answer.error().message;
    return std::get<wire::Refusal>(answer.value().message).reason;
  }
  wire::Join request() const { return {"door", 1, getpid(), "@stranger", 0, "test"}; }
};

TEST_F(Strangers, RandomBytesAreIgnored) {
  auto job = start_half();
  std::mt19937 random(7);
  std::vector<Fd> kept;
  for (int i = 0; i < 300; ++i) {
    auto socket = connect();
    std::vector<std::uint8_t> noise(1 + random() % 4000);
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    if (i % 3 == 0) {  // a good beginning, then noise
      auto good = wire::encode(request());
      std::copy(good.begin(), good.begin() + 8, noise.begin() + 0);
      noise.resize(std::max<std::size_t>(noise.size(), 9));
    }
    EXPECT_GE(::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    if (i % 2) kept.push_back(std::move(socket));
  }
  expect_unharmed(job);
}

TEST_F(Strangers, SilentConnectionsAreBounded) {
  auto job = start_half();
  std::vector<Fd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(connect());
  // The oldest had to go long before their time is up.
  auto answer = net::receive_within(silent[0], 60s);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(std::holds_alternative<wire::Refusal>(answer.value().message));
  expect_unharmed(job);
}

TEST_F(Strangers, SilentConnectionsAreClosedAfterAWhile) {
  auto job = start_half();
  auto silent = connect();
  auto answer = net::receive_within(silent, 60s);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(std::holds_alternative<wire::Refusal>(answer.value().message));
  expect_unharmed(job);
}

TEST_F(Strangers, WrongRequestsAreRefusedWithAReason) {
  auto job = start_half();
  auto wrong = request();
  EXPECT_NE(refusal_of(wrong).find("does not belong to this job"), std::string::npos);
  wrong.pid = 1;
  EXPECT_NE(refusal_of(wrong).find("may not join in the name of"), std::string::npos);
  EXPECT_EQ(refusal_of(wire::Progress{}), "join first");
  EXPECT_EQ(refusal_of(wire::Ready{"w[3]"}), "join first");
  EXPECT_EQ(refusal_of(wire::ViewNotice{1, 1, 1, {}}), "join first");
  expect_unharmed(job);
}

TEST_F(Strangers, NobodyElseIsTheAgent) {
  auto job = start_half();
  EXPECT_NE(refusal_of(wire::AgentHello{"door"}).find("is not the agent of this job"), std::string::npos);
  EXPECT_EQ(refusal_of(wire::Started{0, getpid()}), "join first");
  EXPECT_EQ(refusal_of(wire::Ended{0, 0, "he died"}), "join first");
  EXPECT_EQ(refusal_of(wire::Promise{99, {}}), "join first");
  EXPECT_EQ(refusal_of(wire::Bye{}), "join first");
  expect_unharmed(job);
}

TEST_F(Strangers, AProcessThatNobodyNamesIsRefusedAfterAWhile) {
  auto job = start_half();
  auto unknown = request();
  unknown.id = 77;
  EXPECT_NE(refusal_of(unknown).find("does not belong to this job"), std::string::npos);
  expect_unharmed(job);
}

TEST_F(Strangers, WorkersWithWrongRequestsAreRefusedWithAReason) {
  for (auto [how, reason] :
       {std::pair("job", "this is job 'door'"), std::pair("id", "belongs to worker 0, not to worker 7")}) {
    auto seen = run_workers({"-n", "1", "--name", "door"}, {std::string("wrong=") + how, "join"});
    EXPECT_EQ(seen.status, 9);
    EXPECT_NE(seen.err.find(reason), std::string::npos) << seen.err;
  }
}

TEST_F(Strangers, AWorkerMayComeAgainIfItLeftBeforeTheView) {
  auto seen = run_workers({"-n", "2"}, {"only=1", "falter", "falter", "touch=" + path("left"), "only=0",
                                        "wait=" + path("left"), "all", "join", "steps=2"});
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Strangers, ChildrenOfAWorkerMayJoinForIt) {
  auto job = start_workers({"-n", "2", "--name", "family"}, {"forever"});
  auto program = read_json_when_there("family").at("argv").at(0).get<std::string>();
  job.signal(SIGTERM);
  job.wait();
  auto seen = run({"run", "-n", "2", "/bin/sh", "-c", program + " join out=in; true"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(lines_in(seen.out), 2u);
}

}  // namespace
}  // namespace pliant::cli_test
