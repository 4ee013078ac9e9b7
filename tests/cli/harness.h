// Runs the real `pliant` in a directory of the test's own, and looks at what it does.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pliant::cli_test {

using Words = std::vector<std::string>;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

/// What a finished command left.
struct Outcome {
  int status = -1;  ///< as a shell reports it
  std::string out;
  std::string err;
};

/// Polls until it holds. Generous: a slow machine is no reason to fail.
bool eventually(const std::function<bool()>& holds, std::chrono::seconds limit = std::chrono::seconds(60));
/// False for a zombie.
bool process_runs(pid_t pid);
/// As /proc says it: 'T' is stopped; '?' if there is no such process.
char state_of(pid_t pid);
std::string read_all(const std::string& path);
std::size_t lines_in(const std::string& text);

/// A started command. Destroying it kills it, should it still run.
class Command {
 public:
  /// Runs `words` with exactly this environment; output goes to files `<stem>.out` and `<stem>.err`, unless `terminal`
  /// is a descriptor to use for both.
  Command(const Words& words, const Words& env, const std::string& stem, int terminal = -1);
  Command(Command&& other) noexcept;
  ~Command();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string out() const { return read_all(stem_ + ".out"); }
  std::string err() const { return read_all(stem_ + ".err"); }
  /// Waits until it has said this on its stderr.
  bool comes_to_say(const std::string& text) const;
  bool finished();
  /// Fails the test if it takes too long.
  Outcome wait();

 private:
  pid_t pid_ = -1;
  std::string stem_;
  std::optional<int> status_;
};

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override;
  /// Ends whatever jobs of this test still run.
  void TearDown() override;

  Command start(const Words& words, const Words& more_env = {}, int terminal = -1);
  Outcome run(const Words& words, const Words& more_env = {}) { return start(words, more_env).wait(); }
  /// `pliant run FLAGS cli_worker SCRIPT`.
  Command start_workers(const Words& flags, const Words& script, const Words& more_env = {});
  Outcome run_workers(const Words& flags, const Words& script) { return start_workers(flags, script).wait(); }
  /// The same as arguments of `wrapper`, another program, which runs them.
  Command start_workers_in(const Words& wrapper, const Words& flags, const Words& script);

  /// `pliant WORDS` as arguments of `wrapper`.
  Command start_in(const Words& wrapper, const Words& words);

  /// `LAUNCHER cli_worker SCRIPT`, without `pliant run`.
  Command start_launched(const Words& launcher, const Words& script, const Words& more_env = {});
  /// A program's path, as a shell would find it; empty if it is not installed.
  static std::string program(const std::string& name);

  /// A script for sh that finds `pliant` in its PATH.
  Command start_script(const std::string& file);

  /// A script of workers that train until let_it_end(), after `before`.
  Words endless(Words before = {}) const;
  void let_it_end() const;
  Outcome finish(Command& job) const;

  /// A path inside the test's directory.
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  std::string base() const { return path("jobs"); }
  /// job.json or status.json of a job; null if it is not there.
  nlohmann::json read_json(const std::string& job, const std::string& file = "job.json") const;
  /// Waits until all workers of the job were started and returns their pids.
  std::vector<pid_t> wait_for_workers(const std::string& job, int count);
  /// Waits until the job's coordinator knows a view of exactly these workers, in any order.
  bool view_becomes(const std::string& job, const std::vector<std::uint64_t>& ids);
  /// Waits until the job has done so many steps, by its agent's word.
  bool step_becomes(const std::string& job, std::uint64_t step);
  std::uint64_t step_of(const std::string& job) const;
  /// Waits until the newest view has trained, and for so many steps since it was seen to.
  bool trains_on(const std::string& job, std::uint64_t steps);
  pid_t coordinator_of(const std::string& job) const;
  /// On whichever host, as far as hosts share this machine.
  pid_t worker_of(const std::string& job, std::uint64_t id) const;
  /// The coordinator's and all workers' processes, and those of the hosts' agents.
  std::vector<pid_t> processes_of(const std::string& job) const;
  /// True if no job directory is left.
  bool nothing_left() const;

 private:
  /// Of the job and of its parts on hosts.
  std::vector<std::string> folders_of(const std::string& job) const;
  std::vector<nlohmann::json> records_of(const std::string& job) const;
  /// The coordinator's, on whichever host it was elected; null if there is none.
  nlohmann::json note_of(const std::string& job) const;
  Command launch(const Words& words, const Words& more_env, int terminal);

  std::string dir_;
  int commands_ = 0;
};

/// About one job, "night". Of its processes none may outlive it.
class NightTest : public CliTest {
 protected:
  void TearDown() override;
  /// Those that there are now are looked for in the end.
  void remember();
  /// The coordinator's note.
  nlohmann::json memory() const { return read_json("night", "coordinator.json"); }
  void let_it_end();
  Outcome finish(Command& job);

  std::vector<pid_t> seen_;
};

}  // namespace pliant::cli_test
