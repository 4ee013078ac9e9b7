#include "apps/pliant/slurm_command.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <utility>

#include "apps/pliant/output_tail.h"

namespace pliant::cli {
namespace {

constexpr std::size_t kLongestAnswer = 4 << 20;

std::string read_answer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLongestAnswer, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace

SlurmCommand::SlurmCommand(net::Loop& loop, std::string program, const std::string& dir, Nanos patience)
    : loop_(loop),
      program_(std::move(program)),
      out_(dir + "/" + program_ + ".out"),
      err_(dir + "/" + program_ + ".err"),
      patience_(patience) {}

SlurmCommand::~SlurmCommand() {
  if (process_) process_->signal_group(SIGKILL);
  leave();
}

void SlurmCommand::leave() {
  if (!process_) return;
  loop_.unwatch(process_->pidfd());
  process_.reset();
}

void SlurmCommand::run(const std::vector<std::string>& words, const std::vector<std::string>& env,
                       const std::string& in, std::function<void(const Answer&)> on_answer) {
  PLIANT_ASSERT(!busy());
  auto path = find_program(program_);
  if (!path.ok()) return on_answer({false, "", path.error().message, false});
  SpawnOptions spawn;
  spawn.path = path.value();
  spawn.argv = words;
  spawn.env = env;
  spawn.in = in;
  spawn.out = out_;
  spawn.err = err_;
  getrlimit(RLIMIT_NOFILE, &spawn.files);
  auto process = WatchedProcess::spawn(spawn);
  if (!process.ok()) return on_answer({false, "", process.error().message, false});
  process_ = std::move(process).value();
  on_answer_ = std::move(on_answer);
  began_ = clock_.now();
  killed_ = false;
  loop_.watch(process_->pidfd(), [this] { on_end(); });
}

void SlurmCommand::tick() {
  if (!process_ || killed_ || clock_.now() - began_ < patience_) return;
  killed_ = true;
  process_->signal_group(SIGKILL);
}

void SlurmCommand::wait(Nanos longest) {
  auto end = clock_.now() + longest;
  while (process_) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock_.now()).count();
    if (left <= 0) return;
    pollfd ended{process_->pidfd(), POLLIN, 0};
    poll(&ended, 1, static_cast<int>(left));
    on_end();
  }
}

void SlurmCommand::on_end() {
  if (!process_ || !process_->reap()) return;
  auto ending = *process_->ending();
  leave();
  Answer answer{ending.good(), read_answer(out_), "", ending.signal != 0};
  auto last = last_lines(err_, 1);
  if (killed_)
    answer.words = program_ + " does not answer";
  else if (!answer.good)
    answer.words = last.empty() ? program_ + ": " + ending.words() : last[0];
  std::exchange(on_answer_, nullptr)(answer);
}

}  // namespace pliant::cli
