#include "apps/pliant/watched_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>

#include "base/system.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace pliant::cli {
namespace {

/// 0, or why the file cannot be executed.
int execute_problem(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

Error execute_error(const std::string& path, int number) {
  auto code = number == ENOENT || number == ENOTDIR ? Code::not_found : Code::invalid;
  return {code, errno_error("cannot run " + path, number).message};
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const auto& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

Result<Fd> open_output(const std::string& path, const SpawnOptions& options) {
  int more = (options.append ? 0 : O_TRUNC) | (options.follow_links ? 0 : O_NOFOLLOW);
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | more, 0600));
  if (!file && errno == ELOOP) return Error{Code::io, path + " is a link, which is not followed: remove it"};
  if (!file) return Error{Code::io, errno_error("cannot write " + path).message};
  return file;
}

/// All that the child needs, made before the fork: between fork and exec it only makes system calls.
struct Child {
  const SpawnOptions& options;
  std::vector<char*> argv = pointers(options.argv);
  std::vector<char*> env = pointers(options.env);
  Fd in, out, err;
  Fd report;  // takes the errno of a failed exec; a good exec closes it

  [[noreturn]] void run() const;
};

void Child::run() const {
  if (options.own_session)
    setsid();
  else
    setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setrlimit(RLIMIT_NOFILE, &options.files);
  int problem = 0;
  if (dup2(in.get(), 0) < 0 || dup2(out.get(), 1) < 0 || dup2(err.get(), 2) < 0) problem = errno;
  if (problem == 0) {
    execvpe(options.path.c_str(), argv.data(), env.data());  // the path has a slash; a script may lack its first line
    problem = errno;
  }
  [[maybe_unused]] auto written = write(report.get(), &problem, sizeof(problem));
  _exit(127);
}

/// Waits until the child runs its program: 0, or the errno that kept it from doing so.
int exec_outcome(const Fd& report) {
  int problem = 0;
  ssize_t size = 0;
  do size = read(report.get(), &problem, sizeof(problem));
  while (size < 0 && errno == EINTR);
  return size == sizeof(problem) ? problem : 0;
}

}  // namespace

Result<std::string> find_program(const std::string& name) {
  if (name.empty()) return Error{Code::not_found, "the program's name is empty"};
  if (name.find('/') != std::string::npos) {
    if (int problem = execute_problem(name)) return execute_error(name, problem);
    return name;
  }
  int seen = ENOENT;
  std::istringstream path(env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(path, folder, ':');) {
    auto candidate = (folder.empty() ? "." : folder) + "/" + name;
    int problem = execute_problem(candidate);
    if (problem == 0) return candidate;
    if (problem == EACCES) seen = problem;
  }
  if (seen == ENOENT && execute_problem("./" + name) == 0)
    return Error{Code::not_found, fmt::format("cannot run {0}: not found in PATH; did you mean ./{0}?", name)};
  return execute_error(name, seen);
}

Result<WatchedProcess> WatchedProcess::spawn(const SpawnOptions& options) {
  auto out = open_output(options.out, options);
  if (!out.ok()) return out.error();
  auto err = open_output(options.err, options);
  if (!err.ok()) return err.error();
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return errno_error("pipe");
  Fd outcome(report[0]);
  Child child{options};
  child.in = Fd(open(options.in.empty() ? "/dev/null" : options.in.c_str(), O_RDONLY | O_CLOEXEC));
  child.out = std::move(out).value();
  child.err = std::move(err).value();
  child.report = Fd(report[1]);

  auto pid = fork();
  if (pid < 0) return errno_error("cannot start a process");
  if (pid == 0) child.run();
  if (!options.own_session) setpgid(pid, pid);  // in both: nobody may signal the group before it exists
  child.report.reset();
  if (int problem = exec_outcome(outcome)) {
    waitpid(pid, nullptr, 0);
    return execute_error(options.path, problem);
  }
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    auto error = errno_error("pidfd_open");
    kill_child(pid);
    waitpid(pid, nullptr, 0);
    return error;
  }
  return WatchedProcess({pid, start_time_of(pid).value_or(0)}, std::move(pidfd), true);
}

Result<WatchedProcess> WatchedProcess::take_up(const ProcessId& process) {
  auto pidfd = open_process(process);
  if (!pidfd.ok()) return pidfd.error();
  return WatchedProcess(process, std::move(pidfd).value(), false);
}

bool WatchedProcess::reap() {
  if (ending_) return false;
  if (!child_) {
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (poll(&ended, 1, 0) <= 0) return false;
    ending_ = Ending{0, 0, true};
    return true;
  }
  siginfo_t info{};
  if (waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0)
    return false;
  ending_ = info.si_code == CLD_EXITED ? Ending{info.si_status, 0} : Ending{0, info.si_status};
  return true;
}

void WatchedProcess::signal_group(int signal) const {
  if (ending_) return;
  if (child_)
    signal_child_group(id_.pid, pidfd_, signal);  // its number is its own until it is reaped
  else
    cli::signal_group(id_, pidfd_, signal);
}

}  // namespace pliant::cli
