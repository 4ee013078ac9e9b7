// Shows snapshots of a job: as a live line on a terminal, as a plain line now and then elsewhere, and in status.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/event_log.h"
#include "apps/pliant/console.h"
#include "apps/pliant/status_line.h"
#include "base/clock.h"

namespace pliant::cli {

enum class StatusMode {
  automatic,  ///< a live line if stderr is a terminal, else plain lines
  line,
  plain,
  off,
};

class StatusReporter {
 public:
  /// `job_dir` gets status.json, whatever the mode.
  StatusReporter(Console& console, StatusMode mode, std::string job_dir);

  /// Call often; it decides what is due. Redraws the live line if output has pushed it away.
  void update(Nanos now, const Snapshot& snapshot);
  /// The last word of a job: how it ended and its final state, on a line of its own.
  void finish(const std::string& job, Outcome outcome, const Snapshot& snapshot);
  /// What it has cost, after that and in the records.
  void present(const std::vector<std::string>& bill, agent::EventLog& events);

 private:
  void write_file(const Snapshot& snapshot);

  Console& console_;
  StatusMode mode_;
  std::string job_dir_;
  std::string line_;  // what the live line should show
  std::optional<Nanos> drawn_at_;
  std::optional<Nanos> told_at_;
  std::optional<wire::Progress> told_;
  std::optional<Nanos> written_at_;
  std::string written_;  // what status.json says, apart from times
};

}  // namespace pliant::cli
