// A job on several hosts with a store outside of it, a real etcd: it decides who goes on where hosts cannot see each
// other, and which host has the coordinator. Training does not need it.
#include <filesystem>

#include "cli/stores.h"

namespace pliant::cli_test {
namespace {

TEST_F(StoreHere, AJobTrainsOnWithoutItsStore) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 1)) << job.err();  // nobody begins before the store knows of it
  etcd_->kill();
  ASSERT_TRUE(trains_on("far", 30)) << job.err();
  kill(worker_of("far", 1), SIGKILL);  // proven by its host: nobody needs to be asked
  ASSERT_TRUE(view_becomes("far", {0, 2})) << job.err();
  auto answer = run({"resize", "far", "1"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  etcd_->restart();
  ASSERT_TRUE(trains_on("far", 30)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreHere, AResizeThatTheStoreDoesNotKnowOfIsPromisedAsSuch) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 1)) << job.err();  // nobody begins before the store knows of it
  etcd_->freeze();
  auto answer = run({"resize", "far", "1"});
  EXPECT_SAYS(answer.out + answer.err, "the store does not answer, so that another coordinator would not know of this");
  etcd_->go_on();
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  EXPECT_EQ(run({"resize", "far", "2"}).out.find("the store"), std::string::npos);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, ANameCanBeUsedAgainAfterATotalLoss) {
  {
    auto lost = start_training();
    ASSERT_TRUE(view_becomes("far", {0, 1})) << lost.err();
    ASSERT_TRUE(step_becomes("far", 5)) << lost.err();
    auto all = processes_of("far");
    for (auto pid : all) kill(pid, SIGSTOP);
    lost.signal(SIGKILL);
    for (auto pid : all) kill(pid, SIGKILL);
    lost.wait();
    for (auto pid : all) ASSERT_TRUE(eventually([&] { return !process_runs(pid); }));
  }
  std::filesystem::remove_all(path("records"));
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, ACoordinatorThatIsKilledIsReplacedWhereItWas) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto first = coordinator_of("far");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != first; })) << job.err();
  EXPECT_EQ(run({"resize", "far", "1"}).status, 0);
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, CommandsFindTheCoordinatorWhereverItIs) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto place = [&] { return read_all(base() + "/far/coordinator.address"); };
  auto first = place();
  EXPECT_TRUE(first.starts_with("tcp:127.0.0.1:")) << first;
  auto stopped = coordinator_of("far");
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return place() != first; })) << job.err();
  auto answer = run({"resize", "far", "1"});
  EXPECT_SAYS(answer.out, "will have 1 worker") << answer.err;
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  kill(stopped, SIGCONT);  // it sees that there is another one, and ends
  ASSERT_TRUE(eventually([&] { return !process_runs(stopped); }));
  EXPECT_EQ(run({"resize", "far+b", "2"}).status, 0);  // from any host of the job
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreHere, AHostThatWasLostFindsTheCoordinatorWhereverItIs) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto place = [&] { return read_all(base() + "/far/coordinator.address"); };
  auto first = place();
  auto stopped = coordinator_of("far");
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return place() != first; })) << job.err();
  kill(stopped, SIGKILL);
  auto lost = read_json("far+a");
  kill(lost["agent"]["pid"].get<pid_t>(), SIGKILL);
  kill(lost["workers"][0]["pid"].get<pid_t>(), SIGKILL);
  auto comes_back = [&] {
    auto now = read_json("far+a");
    return now.is_object() && now["agent"] != lost["agent"] && now["workers"].size() > 1;
  };
  EXPECT_TRUE(eventually(comes_back)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreOutside, AFewOfManyGoOnWhenTheHostWithTheCoordinatorIsLost) {
  auto job = start_workers_in(
      {"/usr/sbin/ip", "netns", "exec", a_},
      {"--name", "far", "-H", fmt::format("{}:2,{}:1", a_, b_), "--via", "ip netns exec {host}", "--address",
       "10.79.0.1", "--store", etcd_->url(), "--record", path("records"), "-x", "PLIANT_SILENCE_MS=2000"},
      script(path("enough")));
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("far", 20)) << job.err();
  auto left = read_json("far+" + b_)["workers"][0]["id"].get<std::uint64_t>();
  ASSERT_TRUE(shell("ip link set to1 down"));
  for (auto pid : processes_in(a_)) kill(pid, SIGKILL);
  job.wait();
  auto part = "far+" + b_;
  ASSERT_TRUE(view_becomes(part, {left})) << read_all(base() + "/" + part + "/coordinator.err");
  EXPECT_TRUE(goes_on(left));
  auto agent = read_json(part)["agent"]["pid"].get<pid_t>();
  let_it_end();
  EXPECT_TRUE(eventually([&] { return !process_runs(agent); }));
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
  namespace fs = std::filesystem;
  fs::last_write_time(base() + "/far+" + a_, fs::file_time_type::clock::now() - std::chrono::hours(2));
  run({"ps"});  // sweeps what the lost host left on this disk, when nobody comes for it any more
}

}  // namespace
}  // namespace pliant::cli_test
