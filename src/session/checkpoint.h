// Checkpoints: the job's state in files that need no Pliant to be read.
//
// DIR/step-000000001200/
//   state.safetensors   all shared state (the safetensors format)
//   checkpoint.json     where the job was, and the size and digest of the file above
//
// A checkpoint is written under another name and renamed when it is complete and on the disk: a kill at any instant
// leaves the last good one. Writing never holds up training: the state is copied in memory, the rest happens on a
// thread of its own. Checkpoints are written only to a folder that is this user's and that nobody else can write to,
// and read by this user alone unless another mode of their files is asked for (base/own_files.h).
#pragma once

#include <pliant/pliant.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "step/ledger.h"

namespace pliant::session {

/// Where the job was when the state was taken.
struct Position {
  std::string job;
  std::uint64_t step = 0;  ///< steps committed
  std::uint64_t seed = 0;
  std::uint64_t lineage = 0;  ///< how often the job was restarted from a checkpoint
  std::uint64_t samples = 0;  ///< consumed since the job's beginning
  std::uint64_t loop = 0;     ///< of the program, from 1; 0: not known
  bool begins_loop = false;   ///< no step of that loop is committed: the program may have changed the state before it
  std::uint64_t digest = 0;   ///< of the state; 0: not known
  int workers = 0;            ///< at that time; any number can resume
  std::uint64_t local_batch = 0, global_batch = 0;
  std::optional<step::Ledger> ledger;  ///< with a sampler
  std::string adaptation{};            ///< what monitors and policies know; empty in checkpoints of older versions
};

struct Checkpoint {
  Position position;
  std::string folder;
  struct Tensor {
    Dtype dtype = Dtype::f32;
    std::vector<std::uint64_t> shape;
    std::vector<std::byte> data;
  };
  std::map<std::string, Tensor> tensors;
};

/// Writes one, now and completely; returns its folder. The caller's items are read before the call returns.
Result<std::string> write_checkpoint(const std::string& dir, const Position& position,
                                     const std::vector<StateItem>& items);
/// Reads one and checks all of it: lengths, offsets, types, digest. A file of a stranger's making is an error in one
/// line that says what and where, never a crash or an allocation that it chose.
Result<Checkpoint> read_checkpoint(const std::string& folder);
/// The newest good one in `dir`. Broken ones are passed over: `passed_over` is told why, or the log is if there is no
/// such function. Code::not_found if there is none.
using PassedOver = std::function<void(const std::string& why)>;
Result<Checkpoint> newest_checkpoint(const std::string& dir, const PassedOver& passed_over = {});
/// Removes all but the newest `keep` complete ones, and what interrupted writers left. Broken ones do not count, and go
/// when they are older than the last that is kept.
void prune_checkpoints(const std::string& dir, int keep);
/// Copies the tensors into items of the same names. Code::mismatch, naming the first difference, if they do not fit.
Status restore(const Checkpoint& checkpoint, const std::vector<StateItem>& items);

/// Takes a job's checkpoints, one at a time, beside the training.
/// Threads: one caller.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  /// Copies the items and begins to write them. False if the one before is still being written or not yet stable: this
  /// one is left out. If that other one is not of an earlier step, the job went back behind it: it is dropped, too.
  virtual bool begin(Position position, const std::vector<StateItem>& items) = 0;
  /// Step `step` is stable: checkpoints up to it may take their names.
  virtual void stable(std::uint64_t step) = 0;
  /// Waits until what was begun and is stable has its name. What is not stable by then is dropped. The last call.
  virtual void finish() = 0;
};

/// Where a job's checkpoints are: folders on a disk, or their twins in a simulation.
class CheckpointStorage {
 public:
  virtual ~CheckpointStorage() = default;
  /// `mode` is that of the files.
  virtual std::unique_ptr<CheckpointSink> writer(const std::string& dir, int keep, mode_t mode) = 0;
  /// The newest, if it is of `step` or a later one: whoever was leaving when `step` was chosen may have named it since.
  virtual Result<Checkpoint> read(const std::string& dir, std::uint64_t step) = 0;
  virtual Result<Checkpoint> newest(const std::string& dir) = 0;
  /// The number of a new lineage that begins with a checkpoint in `dir`: never one that was used there before, even if
  /// that run wrote no checkpoint of its own.
  virtual Result<std::uint64_t> begin_lineage(const std::string& dir, std::uint64_t after) = 0;
};
/// The machine's file systems.
CheckpointStorage& checkpoints_on_disk();

/// Writes checkpoints to a disk; the writing happens on a thread of its own.
class CheckpointWriter final : public CheckpointSink {
 public:
  CheckpointWriter(std::string dir, int keep, mode_t mode = 0600);
  /// Finishes, unless that was done.
  ~CheckpointWriter() override;
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  bool begin(Position position, const std::vector<StateItem>& items) override;
  void stable(std::uint64_t step) override;
  void finish() override;
  /// Failures so far (a full disk); each was logged in one line.
  std::uint64_t failures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pliant::session
