#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "session/checkpoint.h"
#include "session/checkpoint_draft.h"
#include "session/checkpoint_life.h"
#include "session/state_file.h"

namespace pliant::session {

class CheckpointWriter::Impl {
 public:
  Impl(std::string dir, int keep, mode_t mode)
      : dir_(std::move(dir)), keep_(std::max(keep, 1)), mode_(mode), thread_([this] { run(); }) {}
  ~Impl() { finish(); }

  void finish() {
    if (!thread_.joinable()) return;
    change([&] { life_.close(); });
    thread_.join();
  }

  bool begin(Position position, const std::vector<StateItem>& items) {
    if (!change([&] { return !life_.busy() || life_.begin(position.step); })) return false;
    if (auto filled = image_.fill(items, position.step); !filled) {
      failed(position.step, filled.error());
      return false;
    }
    position_ = std::move(position);
    return change([&] { return life_.begin(position_.step); });
  }

  void stable(std::uint64_t step) {
    change([&] { life_.stable(step); });
  }

  std::uint64_t failures() const {
    std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  template <class Action>
  std::invoke_result_t<Action> change(Action action) {
    std::lock_guard lock(mutex_);
    changed_.notify_one();
    return action();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return life_.busy() || life_.closing(); });
      if (!life_.busy()) return;
      lock.unlock();
      if (auto done = write(); !done) failed(position_.step, done.error());
      lock.lock();
      life_.done();
    }
  }

  Status write() {
    auto draft = write_draft(dir_, position_, image_, mode_);
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
    changed_.wait(lock, [&] { return life_.fate() != CheckpointLife::Fate::waits; });
    return life_.fate() == CheckpointLife::Fate::named;
  }

  void failed(std::uint64_t step, const Error& error) {
    log::warn("no checkpoint of step {}: {}", step, error.message);
    std::lock_guard lock(mutex_);
    ++failures_;
  }

  const std::string dir_;
  const int keep_;
  const mode_t mode_;

  // The caller's while no checkpoint is in work, then the thread's.
  StateImage image_;
  Position position_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // rung for the thread whenever something below changes
  CheckpointLife life_;              // guarded by mutex_, like all that follows
  std::uint64_t failures_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

CheckpointWriter::CheckpointWriter(std::string dir, int keep, mode_t mode)
    : impl_(std::make_unique<Impl>(std::move(dir), keep, mode)) {}
CheckpointWriter::~CheckpointWriter() = default;

bool CheckpointWriter::begin(Position position, const std::vector<StateItem>& items) {
  return impl_->begin(std::move(position), items);
}
void CheckpointWriter::stable(std::uint64_t step) { impl_->stable(step); }
void CheckpointWriter::finish() { impl_->finish(); }
std::uint64_t CheckpointWriter::failures() const { return impl_->failures(); }

}  // namespace pliant::session
