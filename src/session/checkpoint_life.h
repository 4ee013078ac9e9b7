// The life of a checkpoint, whoever writes it and where to.
#pragma once

#include <cstdint>
#include <optional>

#include "base/planted.h"

namespace pliant::session {

//   idle     begin()                       writing
//   writing  the draft is written          waiting
//   writing  an error                      idle
//   waiting  its step is stable            idle     (it takes its name)
//   waiting  redone, or all is closed      idle     (the draft is removed)
class CheckpointLife {
 public:
  /// What becomes of a draft that is written.
  enum class Fate { waits, named, dropped };

  /// Of the state after `step` steps. False: the one before is not done; if the job went back behind that one, it is of
  /// a history that was taken back, and will be dropped.
  bool begin(std::uint64_t step) {
    if (busy_) {
      redone_ = redone_ || step <= step_;
      return false;
    }
    busy_ = true;
    step_ = step;
    stable_.reset();  // words so far were of other steps, perhaps of a history that was taken back
    return true;
  }
  void stable(std::uint64_t step) { stable_ = step; }
  void close() { closing_ = true; }
  /// REQUIRES busy().
  Fate fate() const {
    if (redone_) return Fate::dropped;
    if ((stable_ && *stable_ >= step_) || planted("named-unstable")) return Fate::named;
    return closing_ ? Fate::dropped : Fate::waits;
  }
  /// It has its name, or is gone.
  void done() { busy_ = redone_ = false; }

  bool busy() const { return busy_; }
  bool closing() const { return closing_; }
  std::uint64_t step() const { return step_; }

 private:
  bool busy_ = false, redone_ = false, closing_ = false;
  std::uint64_t step_ = 0;
  std::optional<std::uint64_t> stable_;
};

}  // namespace pliant::session
