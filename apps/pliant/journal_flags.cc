#include "apps/pliant/journal_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "apps/pliant/command.h"
#include "base/own_files.h"
#include "session/checkpoint_draft.h"
#include "session/journal.h"

namespace pliant::cli {
namespace {

namespace fs = std::filesystem;

Status parse_every(const std::string& text) {
  session::JournalOptions ignored;
  return session::parse_every(text, ignored);
}

/// An absolute path of a folder that this user can write to, and nobody else; made if need be.
std::string usable(const std::string& flag, const std::string& dir, mode_t mode) {
  auto path = fs::absolute(dir).lexically_normal().string();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  auto made = make_directories(path, folder_mode(mode));
  if (!made.ok()) throw Failure(Code::io, fmt::format("{}: {}", flag, made.error().message));
  auto own = OwnDirectory::open(path, Links::own);
  if (!own.ok())
    throw Failure(own.error().code,
                  fmt::format("{}: {} (it wants a folder that is yours alone)", flag, own.error().message));
  if (access(path.c_str(), W_OK | X_OK) != 0) throw Failure(Code::io, fmt::format("{} {}: not writable", flag, path));
  return path;
}

/// Refuses a folder with checkpoints of another job: pruning would keep those of the later steps and remove this job's,
/// and a later --resume would begin with them.
void check_empty(const std::string& dir) {
  auto steps = session::steps_in(dir);
  if (steps.empty()) return;
  throw Failure(Code::invalid, fmt::format("--checkpoint {}: there are checkpoints already, up to step {}: go on from "
                                           "them with '--resume {}', or choose another folder",
                                           dir, steps.front(), dir));
}

/// Is there a checkpoint to begin with? What is passed over, the worker that begins with it will say; here it is of
/// interest only if nothing is left.
void check_resume(const std::string& dir) {
  std::string newest;
  auto found = session::newest_checkpoint(dir, [&](const std::string& why) {
    if (newest.empty()) newest = "; the newest: " + why;
  });
  if (!found.ok()) throw Failure(found.error().code, fmt::format("--resume: {}{}", found.error().message, newest));
}

}  // namespace

void add_journal_flags(CLI::App& run, JournalFlags& flags) {
  run.add_option("--record", flags.record, "Write a line per worker and step there, for 'pliant verify'")
      ->option_text("DIR")
      ->envname("PLIANT_RECORD");
  run.add_option("--checkpoint", flags.checkpoint, "Write the job's state there now and then, and at its end")
      ->option_text("DIR")
      ->envname("PLIANT_CHECKPOINT");
  run.add_option("--every", flags.every, "A checkpoint every N steps, or 30s, 5m, 1h (default: 60s)")
      ->option_text("N|TIME")
      ->envname("PLIANT_CHECKPOINT_EVERY")
      ->check(parses(parse_every));
  run.add_option("--keep", flags.keep, "Keep so many checkpoints (default: 3)")
      ->option_text("N")
      ->envname("PLIANT_CHECKPOINT_KEEP")
      ->check(CLI::Range(1, 1'000'000));
  run.add_option(
         "--file-mode", flags.mode,
         "Who may read records and checkpoints: 0600 you alone, 0640 your group, 0644 everybody (default: 0600)")
      ->option_text("MODE")
      ->envname("PLIANT_FILE_MODE")
      ->check(parses(parse_file_mode));
  run.add_option("--resume", flags.resume, "Begin with the newest good checkpoint in there, on any number of workers")
      ->option_text("DIR")
      ->envname("PLIANT_RESUME");
}

std::vector<std::string> journal_environment(const JournalFlags& flags) {
  std::vector<std::string> list;
  if (flags.checkpoint.empty() && (!flags.every.empty() || flags.keep > 0))
    throw Failure(Code::invalid, "--every and --keep need --checkpoint");
  auto mode = flags.mode.empty() ? mode_t{0600} : parse_file_mode(flags.mode).or_throw();
  if (!flags.mode.empty()) list.push_back("PLIANT_FILE_MODE=" + flags.mode);
  if (!flags.record.empty()) list.push_back("PLIANT_RECORD=" + usable("--record", flags.record, mode));
  auto resume = flags.resume.empty() ? std::string() : fs::absolute(flags.resume).lexically_normal().string();
  if (!flags.checkpoint.empty()) {
    auto dir = usable("--checkpoint", flags.checkpoint, mode);
    if (dir != resume) check_empty(dir);
    list.push_back("PLIANT_CHECKPOINT=" + dir);
  }
  if (!flags.every.empty()) list.push_back("PLIANT_CHECKPOINT_EVERY=" + flags.every);
  if (flags.keep > 0) list.push_back(fmt::format("PLIANT_CHECKPOINT_KEEP={}", flags.keep));
  if (flags.resume.empty()) return list;
  check_resume(resume);
  list.push_back("PLIANT_RESUME=" + resume);
  return list;
}

}  // namespace pliant::cli
