// What a worker leaves in writing for whoever finds its process ended: how its loop ended, and the view that it acted
// in last. A small file that `pliant run` names in PLIANT_NOTE. The coordinator and the neighbours are told as well,
// but may be being replaced just then, or die with it; the file is there.
#pragma once

#include <pliant/types.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "base/planted.h"
#include "base/result.h"
#include "wire/messages.h"

namespace pliant::session {

struct WorkerNote {
  Outcome outcome = Outcome::running;  ///< running: its loop has not ended
  wire::LastView view{};               ///< that it acted in last
  bool closed = false;                 ///< its session has ended: no other loop follows
  /// What its loop's end says of a process that has ended, by itself or not: one that was killed after a loop had
  /// finished might have gone on to another.
  Outcome last_word(bool by_itself) const {
    bool may_go_on = !closed && !by_itself && !planted("killed-is-finished");
    return outcome == Outcome::finished && may_go_on ? Outcome::running : outcome;
  }
  bool operator==(const WorkerNote&) const = default;
};

/// What the file says; an empty note if it is not there or says nothing that makes sense.
WorkerNote read_worker_note(const std::string& path);

/// The writer's end. Every change is one small write, which a kill comes before or after; nothing waits for a disk,
/// because the note is of no use once its machine is gone. Threads: any.
class NoteWriter {
 public:
  /// Without a path nothing is written. The file is made by the first change, in place of what it said before.
  explicit NoteWriter(std::string path) : path_(std::move(path)) {}

  Status set_outcome(Outcome outcome);
  Status set_view(wire::LastView view);
  Status close(Outcome outcome);

 private:
  Status write();  // guarded by mutex_

  const std::string path_;
  std::mutex mutex_;
  Fd file_;          // guarded by mutex_
  WorkerNote note_;  // guarded by mutex_
};

}  // namespace pliant::session
