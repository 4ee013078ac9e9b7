#include "simulation/fleet.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/fd.h"

namespace pliant::sim {
namespace {

/// A process that runs every n-th seed, and writes a line for each: the seed when it begins, and what became of it.
struct Child {
  pid_t pid = 0;
  Fd pipe{};
  std::string text{};      // that has come, and is not a whole line yet
  std::uint64_t seed = 0;  // that it runs
  bool in_seed = false;
};

void say(int pipe, const std::string& line) {
  if (write(pipe, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);  // nobody listens any more
}

[[noreturn]] void run_child(const FleetOptions& options, std::uint64_t number, const RunSeed& run, int pipe) {
  for (auto seed = options.first + number; seed < options.first + options.seeds; seed += options.jobs) {
    say(pipe, fmt::format("begin {}\n", seed));
    auto failure = run(seed);
    std::ranges::replace(failure, '\n', ' ');
    say(pipe, "end " + failure.substr(0, 2000) + "\n");
  }
  _exit(0);
}

Child start(const FleetOptions& options, std::uint64_t number, const RunSeed& run) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    close(ends[0]);
    run_child(options, number, run, ends[1]);
  }
  close(ends[1]);
  child.pipe = Fd(ends[0]);
  return child;
}

struct Failure {
  std::uint64_t seed = 0;
  std::string text;
};

/// What the lines that have come say.
std::vector<Failure> take_lines(Child& child) {
  std::vector<Failure> failures;
  for (auto end = child.text.find('\n'); end != std::string::npos; end = child.text.find('\n')) {
    auto line = child.text.substr(0, end);
    child.text.erase(0, end + 1);
    child.in_seed = line.starts_with("begin ");
    if (child.in_seed) child.seed = std::strtoull(line.c_str() + 6, nullptr, 10);
    if (line.starts_with("end ") && line.size() > 4) failures.push_back({child.seed, line.substr(4)});
  }
  return failures;
}

/// False: it has ended.
bool read_some(Child& child) {
  char buffer[4096];
  auto got = read(child.pipe.get(), buffer, sizeof buffer);
  if (got <= 0) return false;
  child.text.append(buffer, static_cast<std::size_t>(got));
  return true;
}

/// What a child that has ended leaves to be said.
std::string end_of(Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  child.pid = 0;
  child.pipe = Fd();
  return child.in_seed ? fmt::format("the process crashed (status {:#x})", status) : "";
}

}  // namespace

std::uint64_t run_fleet(const FleetOptions& options, const RunSeed& run, const OnFailure& failed) {
  std::vector<Child> children;
  for (std::uint64_t number = 0; number < options.jobs; ++number) children.push_back(start(options, number, run));
  std::uint64_t failures = 0;
  auto note = [&](std::uint64_t seed, const std::string& failure) {
    ++failures;
    failed(seed, failure);
  };
  while (!children.empty() && failures < options.most) {
    std::vector<pollfd> wait;
    for (const auto& child : children) wait.push_back({child.pipe.get(), POLLIN, 0});
    poll(wait.data(), wait.size(), -1);
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!wait[i].revents) continue;
      bool more = read_some(children[i]);
      for (const auto& failure : take_lines(children[i])) note(failure.seed, failure.text);
      if (more) continue;
      if (auto crash = end_of(children[i]); !crash.empty()) note(children[i].seed, crash);
    }
    std::erase_if(children, [](const Child& child) { return child.pid == 0; });
  }
  for (auto& child : children) {
    kill(child.pid, SIGKILL);
    end_of(child);
  }
  return failures;
}

}  // namespace pliant::sim
