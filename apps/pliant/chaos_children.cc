#include "apps/pliant/chaos_children.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "apps/pliant/worker_env.h"

namespace pliant::cli::chaos {

Result<WatchedProcess> Children::spawn(const std::vector<std::string>& words) const {
  SpawnOptions options;
  std::error_code problem;
  bool self = words[0] == "pliant";
  options.path = self ? std::filesystem::read_symlink("/proc/self/exe", problem).string() : words[0];
  options.argv = words;
  options.env = own_environment();
  options.out = options.err = log_;
  getrlimit(RLIMIT_NOFILE, &options.files);
  options.append = true;
  options.follow_links = true;  // --log may be /dev/stderr
  options.own_session = true;
  return WatchedProcess::spawn(options);
}

void Children::start(const std::vector<std::string>& words, const std::string& what) {
  auto started = spawn(words);
  if (!started.ok()) return say_(fmt::format("{}: {}", what, started.error().message));
  children_.push_back({std::move(started).value(), what});
}

bool Children::runs(const std::string& what) const {
  return !what.empty() && std::ranges::any_of(children_, [&](const auto& child) { return child.what == what; });
}

void Children::reap() {
  std::erase_if(children_, [&](auto& child) {
    if (!child.process.reap()) return false;
    const auto& ending = *child.process.ending();
    if (!ending.good() && !child.what.empty())
      say_(fmt::format("{}: {} ({} says why)", child.what, ending.words(), log_));
    return true;
  });
}

}  // namespace pliant::cli::chaos
