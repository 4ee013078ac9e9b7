#include "session/worker_note.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

namespace pliant::session {

WorkerNote read_worker_note(const std::string& path) {
  std::string first, word, second, session, votes;
  std::uint64_t view = 0;
  std::ifstream file(path);
  if (!(file >> first >> view >> second >> word) || first != "view" || second != "outcome") return {};
  file >> session >> votes;
  for (int i = 0; i < kOutcomes; ++i)
    if (auto outcome = static_cast<Outcome>(i); word == name_of(outcome))
      return {outcome, {view, votes == "unvoted"}, session == "closed"};
  return {};
}

Status NoteWriter::set_outcome(Outcome outcome) {
  std::lock_guard lock(mutex_);
  note_.outcome = outcome;
  return write();
}

Status NoteWriter::set_view(wire::LastView view) {
  std::lock_guard lock(mutex_);
  note_.view = view;
  return write();
}

Status NoteWriter::close(Outcome outcome) {
  std::lock_guard lock(mutex_);
  note_.outcome = outcome;
  note_.closed = true;
  return write();
}

/// All notes have the same length, so that each overwrites the one before completely.
Status NoteWriter::write() {
  if (path_.empty()) return {};
  if (!file_) file_ = Fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return errno_error("cannot write " + path_);
  auto text = fmt::format("view {:<20} outcome {:<16} {:<6} {:<7}\n", note_.view.epoch, name_of(note_.outcome),
                          note_.closed ? "closed" : "open", note_.view.unvoted ? "unvoted" : "-");
  auto written = pwrite(file_.get(), text.data(), text.size(), 0);
  if (written < 0) return errno_error("cannot write " + path_);
  if (static_cast<std::size_t>(written) != text.size()) return Error{Code::io, "cannot write all of " + path_};
  return {};
}

}  // namespace pliant::session
