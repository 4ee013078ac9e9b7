#include "cli/harness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

namespace pliant::cli_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> list;
  for (const auto& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

int open_output(const std::string& path) { return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); }

}  // namespace

bool eventually(const std::function<bool()>& holds, std::chrono::seconds limit) {
  auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

char state_of(pid_t pid) {
  auto stat = read_all(fmt::format("/proc/{}/stat", pid));
  auto end = stat.rfind(')');
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

bool process_runs(pid_t pid) {
  auto state = state_of(pid);
  return state != '?' && state != 'Z' && state != 'X';
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

Command::Command(const Words& words, const Words& env, const std::string& stem, int terminal) : stem_(stem) {
  auto argv = pointers(words);
  auto variables = pointers(env);
  int out = terminal >= 0 ? terminal : open_output(stem + ".out");
  int err = terminal >= 0 ? terminal : open_output(stem + ".err");
  pid_ = fork();
  if (pid_ == 0) {
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, SIG_DFL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    syscall(SYS_close_range, 3, ~0U, 0);  // what the test itself inherited
    execve(argv[0], argv.data(), variables.data());
    _exit(125);
  }
  if (terminal >= 0) return;
  close(out);
  close(err);
}

Command::Command(Command&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), stem_(std::move(other.stem_)), status_(other.status_) {}

Command::~Command() {
  if (pid_ < 0 || status_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Command::signal(int number) const {
  if (pid_ > 0 && !status_) kill(pid_, number);
}

bool Command::finished() {
  int raw = 0;
  if (status_ || waitpid(pid_, &raw, WNOHANG) != pid_) return status_.has_value();
  status_ = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
  return true;
}

bool Command::comes_to_say(const std::string& text) const {
  return eventually([&] { return err().find(text) != std::string::npos; });
}

Outcome Command::wait() {
  EXPECT_TRUE(eventually([&] { return finished(); }, 100s)) << "does not end; so far: " << out() << err();
  return {status_.value_or(-1), out(), err()};
}

void CliTest::SetUp() {
  auto pattern = (fs::temp_directory_path() / "pliant-cli-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  dir_ = pattern;
}

void CliTest::TearDown() {
  std::error_code ignored;
  if (fs::exists(base(), ignored))
    for (const auto& job : fs::directory_iterator(base(), ignored))
      run({"stop", "--force", job.path().filename().string()});
  fs::remove_all(dir_, ignored);
}

Command CliTest::launch(const Words& words, const Words& more_env, int terminal) {
  Words env = {"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "PLIANT_DIR=" + base()};
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
    if (const char* value = std::getenv(name)) env.push_back(fmt::format("{}={}", name, value));
  for (const auto& entry : more_env) {
    auto name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(env, [&](const auto& known) { return known.starts_with(name); });
    env.push_back(entry);
  }
  return {words, env, path(fmt::format("command-{}", commands_++)), terminal};
}

Command CliTest::start(const Words& words, const Words& more_env, int terminal) {
  return launch(joined({PLIANT_BINARY}, words), more_env, terminal);
}

Command CliTest::start_workers(const Words& flags, const Words& script, const Words& more_env) {
  return start(joined(joined({"run"}, flags), joined({PLIANT_CLI_WORKER}, script)), more_env);
}

Command CliTest::start_workers_in(const Words& wrapper, const Words& flags, const Words& script) {
  auto words = joined({PLIANT_BINARY, "run"}, joined(flags, joined({PLIANT_CLI_WORKER}, script)));
  return launch(joined(wrapper, words), {}, -1);
}

Command CliTest::start_in(const Words& wrapper, const Words& words) {
  return launch(joined(wrapper, joined({PLIANT_BINARY}, words)), {}, -1);
}

Command CliTest::start_launched(const Words& launcher, const Words& script, const Words& more_env) {
  return launch(joined(launcher, joined({PLIANT_CLI_WORKER}, script)), more_env, -1);
}

std::string CliTest::program(const std::string& name) {
  for (const char* folder : {"/usr/local/bin/", "/usr/local/sbin/", "/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"})
    if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return "";
}

Command CliTest::start_script(const std::string& file) {
  auto folder = fs::path(PLIANT_BINARY).parent_path().string();
  return launch({"/bin/sh", file}, {"PATH=" + folder + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, -1);
}

nlohmann::json CliTest::read_json(const std::string& job, const std::string& file) const {
  return nlohmann::json::parse(read_all(base() + "/" + job + "/" + file), nullptr, false);
}

std::vector<pid_t> CliTest::wait_for_workers(const std::string& job, int count) {
  std::vector<pid_t> pids;
  EXPECT_TRUE(eventually([&] {
    auto record = read_json(job);
    if (!record.is_object() || record["workers"].size() != static_cast<std::size_t>(count)) return false;
    for (const auto& worker : record["workers"]) pids.push_back(worker["pid"]);
    return true;
  })) << "job "
      << job << " does not start";
  return pids;
}

bool CliTest::view_becomes(const std::string& job, const std::vector<std::uint64_t>& ids) {
  return eventually([&] {
    auto note = note_of(job);
    if (!note.is_object()) return false;
    std::vector<std::uint64_t> seen;
    for (const auto& member : note["view"]["members"]) seen.push_back(member["id"]);
    return std::ranges::is_permutation(seen, ids);
  });
}

std::uint64_t CliTest::step_of(const std::string& job) const {
  auto status = read_json(job, "status.json");
  return status.is_object() && status["progress"].is_object() ? status["progress"]["step"].get<std::uint64_t>() : 0;
}

bool CliTest::step_becomes(const std::string& job, std::uint64_t step) {
  return eventually([&] { return step_of(job) >= step; });
}

bool CliTest::trains_on(const std::string& job, std::uint64_t steps) {
  std::optional<std::uint64_t> first;
  return eventually([&] {
    auto status = read_json(job, "status.json"), note = note_of(job);
    if (!status.is_object() || !status["progress"].is_object() || !note.is_object()) return false;
    const auto& progress = status["progress"];
    if (progress["view"] != note["view"]["epoch"])
      first.reset();
    else if (!first)
      first = progress["step"].get<std::uint64_t>();
    return first && progress["step"] >= *first + steps;
  });
}

pid_t CliTest::coordinator_of(const std::string& job) const {
  auto note = note_of(job);
  return note.is_object() ? note["process"]["pid"].get<pid_t>() : 0;
}

nlohmann::json CliTest::note_of(const std::string& job) const {
  nlohmann::json newest;
  auto rank = [](const nlohmann::json& note) {
    return std::tuple(process_runs(note["process"]["pid"].get<pid_t>()), note["view"]["epoch"].get<std::uint64_t>(),
                      note["process"]["start"].get<std::uint64_t>());
  };
  for (const auto& name : folders_of(job)) {
    auto note = read_json(name, "coordinator.json");
    if (note.is_object() && (!newest.is_object() || rank(note) > rank(newest))) newest = std::move(note);
  }
  return newest;
}

std::vector<std::string> CliTest::folders_of(const std::string& job) const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& dir : fs::directory_iterator(base(), ignored)) {
    auto name = dir.path().filename().string();
    if (name == job || name.starts_with(job + "+")) names.push_back(name);
  }
  return names;
}

std::vector<nlohmann::json> CliTest::records_of(const std::string& job) const {
  std::vector<nlohmann::json> records;
  for (const auto& name : folders_of(job))
    if (auto record = read_json(name); record.is_object()) records.push_back(std::move(record));
  return records;
}

pid_t CliTest::worker_of(const std::string& job, std::uint64_t id) const {
  for (const auto& record : records_of(job))
    for (const auto& worker : record["workers"])
      if (worker["id"] == id) return worker["pid"];
  return 0;
}

std::vector<pid_t> CliTest::processes_of(const std::string& job) const {
  std::vector<pid_t> pids{coordinator_of(job)};
  for (const auto& record : records_of(job)) {
    if (record["name"] != job) pids.push_back(record["agent"]["pid"]);
    for (const auto& worker : record["workers"]) pids.push_back(worker["pid"]);
  }
  return pids;
}

Words CliTest::endless(Words before) const {
  before.insert(before.end(), {"until=" + path("enough"), "train=1000000"});
  return before;
}

void CliTest::let_it_end() const { std::ofstream(path("enough")) << ""; }

Outcome CliTest::finish(Command& job) const {
  let_it_end();
  return job.wait();
}

bool CliTest::nothing_left() const {
  std::error_code ignored;
  return !fs::exists(base(), ignored) || fs::is_empty(base(), ignored);
}

// ---- one job ----

void NightTest::TearDown() {
  for (auto pid : seen_) EXPECT_TRUE(eventually([&] { return !process_runs(pid); })) << pid;
  CliTest::TearDown();
}

void NightTest::remember() {
  for (auto pid : processes_of("night"))
    if (pid > 0) seen_.push_back(pid);
}

void NightTest::let_it_end() {
  remember();
  CliTest::let_it_end();
}

Outcome NightTest::finish(Command& job) {
  let_it_end();
  return job.wait();
}

}  // namespace pliant::cli_test
