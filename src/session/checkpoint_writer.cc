#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "session/checkpoint.h"
#include "session/checkpoint_draft.h"
#include "session/state_file.h"

namespace pliant::session {

// A checkpoint's life:
//   idle     begin()                     writing   (image and position belong to the thread)
//   writing  the draft is on the disk    waiting
//   writing  an error                    idle      (logged and counted)
//   waiting  stable(step)                idle      (named; older ones removed)
//   waiting  the destructor, or redone   idle      (the draft is removed)
class CheckpointWriter::Impl {
 public:
  Impl(std::string dir, int keep) : dir_(std::move(dir)), keep_(std::max(keep, 1)), thread_([this] { run(); }) {}
  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  bool begin(Position position, const std::vector<StateItem>& items) {
    {
      std::lock_guard lock(mutex_);
      if (busy_) {
        if (position.step <= position_.step) redone_ = true;
        changed_.notify_one();
        return false;
      }
    }
    if (auto filled = image_.fill(items, position.step); !filled) {
      failed(position.step, filled.error());
      return false;
    }
    std::lock_guard lock(mutex_);
    position_ = std::move(position);
    busy_ = true;
    changed_.notify_one();
    return true;
  }

  void stable(std::uint64_t step) {
    std::lock_guard lock(mutex_);
    stable_ = std::max(stable_.value_or(0), step);
    changed_.notify_one();
  }

  std::uint64_t failures() const {
    std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return busy_ || closing_; });
      if (!busy_) return;
      lock.unlock();
      if (auto done = write(); !done) failed(position_.step, done.error());
      lock.lock();
      busy_ = redone_ = false;
    }
  }

  Status write() {
    auto draft = write_draft(dir_, position_, image_);
    if (!draft) return draft.error();
    if (!wait_until_stable()) return {};
    auto folder = draft.value().publish(position_.step);
    if (!folder) return folder.error();
    log::debug("checkpoint of step {}: {}", position_.step, folder.value());
    prune_checkpoints(dir_, keep_);
    return {};
  }

  bool wait_until_stable() {
    std::unique_lock lock(mutex_);
    auto stable = [&] { return stable_ && *stable_ >= position_.step; };
    changed_.wait(lock, [&] { return redone_ || closing_ || stable(); });
    return !redone_ && stable();
  }

  void failed(std::uint64_t step, const Error& error) {
    log::warn("no checkpoint of step {}: {}", step, error.message);
    std::lock_guard lock(mutex_);
    ++failures_;
  }

  const std::string dir_;
  const int keep_;

  // The caller's while busy_ is false, then the thread's. (The caller may still read position_: nobody writes it.)
  StateImage image_;
  Position position_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // rung for the thread whenever something below changes
  bool busy_ = false;                // guarded by mutex_, like all that follows
  bool redone_ = false;              // the one in work is of a history that was taken back
  bool closing_ = false;
  std::optional<std::uint64_t> stable_;  // nothing before the first stable()
  std::uint64_t failures_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

CheckpointWriter::CheckpointWriter(std::string dir, int keep) : impl_(std::make_unique<Impl>(std::move(dir), keep)) {}
CheckpointWriter::~CheckpointWriter() = default;

bool CheckpointWriter::begin(Position position, const std::vector<StateItem>& items) {
  return impl_->begin(std::move(position), items);
}
void CheckpointWriter::stable(std::uint64_t step) { impl_->stable(step); }
std::uint64_t CheckpointWriter::failures() const { return impl_->failures(); }

}  // namespace pliant::session
