// The folder of a simulated job's checkpoints, which all of its hosts see.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "session/checkpoint.h"

namespace pliant::sim {

class Process;

class CheckpointFolder {
 public:
  /// Takes its name; all but the newest `keep` go.
  void publish(session::Checkpoint checkpoint, int keep);
  std::optional<std::uint64_t> newest() const;
  Result<session::Checkpoint> read(std::uint64_t step) const;
  std::uint64_t begin_lineage(std::uint64_t after);
  /// Called when there is another one.
  std::function<void(const session::Checkpoint& checkpoint)> published = [](const auto&) {};

 private:
  std::map<std::uint64_t, session::Checkpoint> all_;  // by step
  std::uint64_t lineage_ = 0;
};

/// How a worker sees it. Writing takes a while, and ends with the process.
class TwinCheckpoints final : public session::CheckpointStorage {
 public:
  explicit TwinCheckpoints(Process& process) : process_(process) {}
  std::unique_ptr<session::CheckpointSink> writer(const std::string& dir, int keep, mode_t mode) override;
  Result<session::Checkpoint> read(const std::string& dir, std::uint64_t step) override;
  Result<session::Checkpoint> newest(const std::string& dir) override;
  Result<std::uint64_t> begin_lineage(const std::string& dir, std::uint64_t after) override;

 private:
  Process& process_;
};

}  // namespace pliant::sim
