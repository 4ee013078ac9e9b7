// How a job ends for the process that runs it: its outcome, and the exit status that says so.
#pragma once

#include <algorithm>
#include <csignal>

#include "wire/messages.h"

namespace pliant::agent {

class Verdict {
 public:
  /// A signal, or a word from elsewhere (0), has asked for the end: what follows is no failure of the job's.
  void interrupt(int signal) {
    interrupted_ = true;
    if (signal) exit_status_ = 128 + signal;
  }
  bool interrupted() const { return interrupted_; }

  bool open() const { return outcome_ == Outcome::running; }
  /// Even one that was told to stop: the work was done by then.
  void finish() {
    outcome_ = Outcome::finished;
    exit_status_ = 0;
  }
  /// Its workers were all told to leave, or this process was.
  void stop() {
    outcome_ = Outcome::stopped;
    if (!interrupted_) exit_status_ = 128 + SIGTERM;
  }
  void fail(int status) {
    outcome_ = Outcome::failed;
    exit_status_ = status;
  }
  /// It ended so by the word of others, whose exit status says it: this one's stays as it is.
  void hear(Outcome outcome) { outcome_ = outcome; }
  /// Something that belongs to the job failed, whatever becomes of the job itself.
  void blame(int status) { exit_status_ = std::max(exit_status_, status); }

  Outcome outcome() const { return outcome_; }
  int exit_status() const { return exit_status_; }

 private:
  bool interrupted_ = false;
  Outcome outcome_ = Outcome::running;
  int exit_status_ = 0;
};

}  // namespace pliant::agent
