#include "simulation/twin_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "session/checkpoint_life.h"
#include "session/checkpoint_record.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

using session::Checkpoint;
using session::CheckpointLife;
using session::Position;

/// What a reader of the files finds.
Checkpoint file_of(Position position, const std::vector<StateItem>& items) {
  Checkpoint file;
  file.folder = fmt::format("step-{}", position.step);
  auto text = session::encode_record({.position = std::move(position), .state = {}});
  file.position = session::decode_record(text).or_throw().position;
  for (const auto& item : items) {
    const auto* bytes = static_cast<const std::byte*>(item.data);
    auto shape = item.shape.empty() ? std::vector{std::uint64_t{item.count}} : item.shape;
    file.tensors[item.name] = {item.dtype, std::move(shape), {bytes, bytes + item.bytes()}};
  }
  return file;
}

class Writer final : public session::CheckpointSink {
 public:
  Writer(Process& process, int keep) : process_(process), keep_(keep) {}
  ~Writer() override { *lives_ = false; }

  bool begin(Position position, const std::vector<StateItem>& items) override {
    if (!life_.begin(position.step)) {
      settle();
      return false;
    }
    draft_ = file_of(std::move(position), items);
    written_ = false;
    process_.later(process_.world().rng().between(microseconds(50), milliseconds(25)), [this, lives = lives_] {
      if (!*lives) return;
      written_ = true;
      settle();
      process_.wake();
    });
    return true;
  }
  void stable(std::uint64_t step) override {
    life_.stable(step);
    settle();
  }
  void finish() override {
    life_.close();
    settle();
    while (life_.busy()) process_.park();
  }

 private:
  void settle() {
    if (!process_.alive() || !life_.busy() || !written_ || life_.fate() == CheckpointLife::Fate::waits) return;
    if (life_.fate() == CheckpointLife::Fate::named) {
      process_.world().note(process_, "names the checkpoint of step {}", life_.step());
      process_.world().checkpoints().publish(std::move(draft_), keep_);
    }
    life_.done();
  }

  Process& process_;
  const int keep_;
  CheckpointLife life_;
  Checkpoint draft_;
  bool written_ = false;
  std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);
};

}  // namespace

void CheckpointFolder::publish(Checkpoint checkpoint, int keep) {
  published(checkpoint);
  auto step = checkpoint.position.step;
  all_.insert_or_assign(step, std::move(checkpoint));
  while (all_.size() > static_cast<std::size_t>(keep)) all_.erase(all_.begin());
}

std::optional<std::uint64_t> CheckpointFolder::newest() const {
  if (all_.empty()) return std::nullopt;
  return all_.rbegin()->first;
}

Result<Checkpoint> CheckpointFolder::read(std::uint64_t step) const {
  if (newest() < step) return Error{Code::not_found, fmt::format("there is no checkpoint of step {}", step)};
  return all_.rbegin()->second;
}

std::uint64_t CheckpointFolder::begin_lineage(std::uint64_t after) { return lineage_ = std::max(lineage_, after) + 1; }

std::unique_ptr<session::CheckpointSink> TwinCheckpoints::writer(const std::string& /*dir*/, int keep,
                                                                 mode_t /*mode*/) {
  return std::make_unique<Writer>(process_, keep);
}

Result<Checkpoint> TwinCheckpoints::read(const std::string& /*dir*/, std::uint64_t step) {
  process_.sleep(process_.world().rng().between(microseconds(100), milliseconds(30)));
  return process_.world().checkpoints().read(step);
}

Result<Checkpoint> TwinCheckpoints::newest(const std::string& dir) {
  auto step = process_.world().checkpoints().newest();
  if (!step) return Error{Code::not_found, "there is no checkpoint"};
  return read(dir, *step);
}

Result<std::uint64_t> TwinCheckpoints::begin_lineage(const std::string& /*dir*/, std::uint64_t after) {
  return process_.world().checkpoints().begin_lineage(after);
}

}  // namespace pliant::sim
