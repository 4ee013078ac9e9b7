#include "apps/pliant/chaos_undo.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>

namespace pliant::cli::chaos {
namespace {

void resume(const ProcessId& process) {
  if (auto pidfd = open_process(process); pidfd.ok()) signal_process(pidfd.value(), SIGCONT);
}

void thaw(const Undo& undo) {
  std::ofstream(undo.cgroup + "/cgroup.freeze") << 0;
  if (alive(undo.process)) std::ofstream(undo.former + "/cgroup.procs") << undo.process.pid;
  rmdir(undo.cgroup.c_str());
}

/// Reads the list until its writer is gone.
void run_guard(int pipe) {
  std::map<std::uint64_t, Undo> list;
  std::unique_ptr<FILE, int (*)(FILE*)> lines(fdopen(pipe, "r"), std::fclose);
  char* line = nullptr;
  std::size_t room = 0;
  while (getline(&line, &room, lines.get()) > 0) {
    std::istringstream words(line);
    char sign = 0;
    std::uint64_t number = 0;
    std::string rest;
    if (!(words >> sign >> number)) continue;
    std::getline(words >> std::ws, rest);
    if (sign == '-') list.erase(number);
    if (auto undo = undo_from(rest); sign == '+' && undo) list[number] = *undo;
  }
  std::free(line);
  for (const auto& [number, undo] : list) perform(undo);
}

}  // namespace

void perform(const Undo& undo) {
  switch (undo.what) {
    case Undo::What::resume:
      return resume(undo.process);
    case Undo::What::thaw:
      return thaw(undo);
    case Undo::What::command:
      if (std::system(undo.command.c_str()) != 0) fmt::print(stderr, "pliant chaos: failed: {}\n", undo.command);
  }
}

std::string undo_text(const Undo& undo) {
  std::ostringstream text;
  text << static_cast<int>(undo.what) << ' ' << undo.process.pid << ' ' << undo.process.start << ' '
       << std::quoted(undo.cgroup) << ' ' << std::quoted(undo.former) << ' ' << std::quoted(undo.command);
  return text.str();
}

std::optional<Undo> undo_from(const std::string& text) {
  std::istringstream words(text);
  Undo undo;
  int what = 0;
  words >> what >> undo.process.pid >> undo.process.start >> std::quoted(undo.cgroup) >> std::quoted(undo.former) >>
      std::quoted(undo.command);
  if (!words || what < 0 || what > static_cast<int>(Undo::What::command)) return std::nullopt;
  undo.what = static_cast<Undo::What>(what);
  return undo;
}

Result<Guard> Guard::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe");
  Fd reading(ends[0]);
  Fd writing(ends[1]);
  auto pid = fork();
  if (pid < 0) return errno_error("cannot start a process");
  if (pid > 0) return Guard(std::move(writing));
  writing.reset();
  setsid();  // no terminal's Ctrl-C reaches it
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) signal(number, SIG_IGN);
  // Whoever reads this command's output must not wait for the guard.
  if (int null = open("/dev/null", O_RDWR); null >= 0)
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  run_guard(reading.release());
  _exit(0);
}

void Guard::keep(std::uint64_t number, const Undo& undo) { tell(fmt::format("+{} {}\n", number, undo_text(undo))); }

void Guard::drop(std::uint64_t number) { tell(fmt::format("-{}\n", number)); }

void Guard::tell(std::string line) {
  // Lines are shorter than what a pipe takes at once; a guard that is gone cannot be helped.
  while (pipe_ && write(pipe_.get(), line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace pliant::cli::chaos
