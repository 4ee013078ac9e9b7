#include "apps/pliant/rescue.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "session/checkpoint.h"

namespace pliant::cli {
namespace {

constexpr std::string_view kPrefix = "step-";

double changed_at(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) * 1e-9;
}

/// Folders of checkpoints that were written since, the one of the latest step first.
std::vector<std::string> folders_since(const std::string& dir, double since) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    auto path = entry.path().string();
    if (entry.path().filename().string().starts_with(kPrefix) && changed_at(path) >= since) folders.push_back(path);
  }
  std::ranges::sort(folders, std::greater());  // steps are written with leading zeros
  return folders;
}

}  // namespace

std::string value_in(const std::vector<std::string>& env, std::string_view key) {
  std::string value;
  for (const auto& entry : env)
    if (entry.size() > key.size() && entry.starts_with(key) && entry[key.size()] == '=')
      value = entry.substr(key.size() + 1);
  return value;
}

Result<std::uint64_t> newest_checkpoint_of(const JobRecord& record) {
  auto dir = value_in(record.plan.env, "PLIANT_CHECKPOINT");
  if (dir.empty()) return Error{Code::not_found, "the job writes no checkpoints (--checkpoint)"};
  bool continues = value_in(record.plan.env, "PLIANT_RESUME") == dir;
  std::string broken;
  for (const auto& folder : folders_since(dir, continues ? 0 : record.started_at)) {
    auto checkpoint = session::read_checkpoint(folder);
    if (checkpoint.ok()) return checkpoint.value().position.step;
    if (broken.empty()) broken = checkpoint.error().message;
  }
  if (!broken.empty())
    return Error{Code::not_found, fmt::format("there is no good checkpoint in {} ({})", dir, broken)};
  return Error{Code::not_found, fmt::format("it had not written a checkpoint to {} yet (--every says how often)", dir)};
}

}  // namespace pliant::cli
