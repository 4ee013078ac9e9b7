#include "apps/pliant/chaos_freezer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace pliant::cli::chaos {
namespace {

Result<std::string> cgroup_of(pid_t pid) {
  std::error_code ignored;
  std::string root = "/sys/fs/cgroup";
  if (!std::filesystem::exists(root + "/cgroup.procs", ignored)) root += "/unified";
  if (!std::filesystem::exists(root + "/cgroup.procs", ignored))
    return Error{Code::refused, "this machine has no cgroup v2 tree"};
  constexpr std::string_view kOurs = "0::";
  std::ifstream lines(fmt::format("/proc/{}/cgroup", pid));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kOurs)) return root + (line == "0::/" ? "" : line.substr(kOurs.size()));
  return Error{Code::refused, fmt::format("process {} is in no cgroup v2", pid)};
}

Status write_to(const std::string& path, const std::string& text) {
  Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) < 0) return errno_error(path);
  return {};
}

}  // namespace

Status check_freezer() {
  auto trial = make_freezer(this_process(), 0);
  if (!trial.ok()) return trial.error();
  auto path = trial.value().cgroup + "/cgroup.freeze";
  bool usable = access(path.c_str(), W_OK) == 0;
  rmdir(trial.value().cgroup.c_str());
  if (!usable) return Error{Code::refused, "cannot write " + path};
  return {};
}

Result<Undo> make_freezer(const ProcessId& process, std::uint64_t number) {
  auto own = cgroup_of(process.pid);
  if (!own.ok()) return own.error();
  Undo undo;
  undo.what = Undo::What::thaw;
  undo.process = process;
  undo.former = own.value();
  undo.cgroup = fmt::format("{}/pliant-chaos-{}-{}", own.value(), getpid(), number);
  if (mkdir(undo.cgroup.c_str(), 0755) != 0) {
    auto error = errno_error(undo.cgroup);
    return Error{Code::refused, error.message};
  }
  return undo;
}

Status freeze(const Undo& freezer) {
  PLIANT_TRY(write_to(freezer.cgroup + "/cgroup.procs", std::to_string(freezer.process.pid)));
  return write_to(freezer.cgroup + "/cgroup.freeze", "1");
}

}  // namespace pliant::cli::chaos
