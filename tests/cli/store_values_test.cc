// What others write to a job's store while the job runs: forged, malformed, old and removed values count for nothing.
#include <atomic>
#include <filesystem>
#include <thread>

#include "cli/stores.h"
#include "membership/signed_store.h"
#include "net/loop_thread.h"

namespace pliant::cli_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// Somebody who can write to the store, and does not know the job's secret.
class Intruder {
 public:
  explicit Intruder(const std::string& url) {
    place_.do_there([&] { store_ = membership::open_store(place_.loop(), url).or_throw(); });
  }
  ~Intruder() {
    place_.do_there([&] { store_.reset(); });
  }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  std::string read(const std::string& key) { return entry(key).text; }
  void put(const std::string& key, const std::string& text) {
    auto revision = entry(key).revision;
    (void)place_.outcome_of<Result<membership::Attempt>>(  // whoever is faster is replaced the next time
        [&](auto done) { store_->replace(key, revision, text, std::move(done)); });
  }
  void remove(const std::string& key) {
    (void)place_.outcome_of<Status>([&](auto done) { store_->remove_all(key, std::move(done)); });
  }

 private:
  membership::Entry entry(const std::string& key) {
    auto got = place_.outcome_of<Result<membership::Entry>>([&](auto done) { store_->read(key, std::move(done)); });
    return got.ok() ? got.value() : membership::Entry{};
  }
  net::LoopThread place_;
  std::unique_ptr<membership::Store> store_;
};

class StoreValues : public StoreOutside {
 protected:
  static constexpr const char* kKeys[] = {"far/coordinator", "far/memory"};

  Command start_job() {
    return start_workers_in(
        {"/usr/sbin/ip", "netns", "exec", a_},
        {"--name", "far", "-H", fmt::format("{}:2,{}:1", a_, b_), "--via", "ip netns exec {host}", "--address",
         "10.79.0.1", "--store", etcd_->url(), "--record", path("records"), "-x", "PLIANT_SILENCE_MS=2000"},
        script(path("enough")));
  }
  std::string store_of_job() const { return read_json("far")["plan"]["store"]; }
  /// All that was said by processes of this job's part on a host, or of its head.
  std::string words_of(const std::string& part) const {
    std::string words;
    for (const auto& file : fs::directory_iterator(base() + "/" + part))
      if (file.is_regular_file()) words += read_all(file.path());
    return words;
  }
  /// Whether the store has what the job has signed.
  bool is_well(Intruder& intruder, const std::string& key) {
    membership::ValueSigner signer{net::Secret::from_file(base() + "/far/secret").or_throw(), "far"};
    return membership::open_value(signer, key, intruder.read(key)).ok();
  }
};

/// Puts another thing into the store every moment, until the job's processes have seen some of each.
void write_all_the_time(Intruder& intruder, const std::atomic<bool>& enough, const char* const (&keys)[2]) {
  std::map<std::string, std::string> old;
  for (const auto* key : keys) old[key] = intruder.read(key);
  for (int turn = 0; !enough; ++turn) {
    for (const std::string key : keys) {
      auto forged = intruder.read(key);
      if (!forged.empty()) forged.back() ^= 1;
      if (turn % 4 == 0) intruder.put(key, "tcp:10.79.0.66:6666");
      if (turn % 4 == 1) intruder.put(key, forged);
      if (turn % 4 == 2) intruder.put(key, old[key]);
      if (turn % 4 == 3) intruder.remove(key);
    }
    std::this_thread::sleep_for(300ms);
  }
}

TEST_F(StoreValues, OfOthersCountForNothingWhileAJobLosesWorkersItsCoordinatorAndAHost) {
  auto job = start_job();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("far", 20)) << job.err();
  Intruder intruder(store_of_job());
  for (const auto* key : kKeys) ASSERT_TRUE(is_well(intruder, key)) << key;

  std::atomic<bool> enough = false;
  std::thread writer([&] { write_all_the_time(intruder, enough, kKeys); });
  auto first = coordinator_of("far");
  kill(worker_of("far", 1), SIGKILL);
  bool replaced = view_becomes("far", {0, 2, 3});
  kill(first, SIGKILL);
  bool succeeded = eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != first; });
  bool named = eventually([&] {
    auto words = job.err() + words_of("far");
    return words.find("' counts as absent: it is not signed by this job") != std::string::npos &&
           words.find("' counts as absent: its signature is wrong") != std::string::npos;
  });
  bool trains = trains_on("far", 30);
  enough = true;
  writer.join();
  EXPECT_TRUE(replaced && succeeded && trains) << job.err() << words_of("far");
  EXPECT_TRUE(named) << job.err() << words_of("far");
  for (const auto* key : kKeys)
    EXPECT_TRUE(eventually([&] { return is_well(intruder, key); })) << key << " is stored again";

  // Which view follows the loss of a host was forged beforehand.
  auto part = "far+" + b_;
  auto left = read_json(part)["workers"][0]["id"].get<std::uint64_t>();
  for (int epoch = 1; epoch < 100; ++epoch) intruder.put(fmt::format("far/view/{}", epoch), "no view");
  ASSERT_TRUE(shell("ip link set to1 down"));
  for (auto pid : processes_in(a_)) kill(pid, SIGKILL);
  job.wait();
  ASSERT_TRUE(view_becomes(part, {left})) << words_of(part);
  EXPECT_TRUE(goes_on(left));
  EXPECT_SAYS(words_of(part), "the store's value of 'far/view/");
  auto agent = read_json(part)["agent"]["pid"].get<pid_t>();
  let_it_end();
  EXPECT_TRUE(eventually([&] { return !process_runs(agent); }));
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
  fs::last_write_time(base() + "/far+" + a_, fs::file_time_type::clock::now() - std::chrono::hours(2));
  run({"ps"});  // sweeps what the lost host left on this disk, when nobody comes for it any more
}

}  // namespace
}  // namespace pliant::cli_test
