// Where records go: a file in production, memory in a simulation.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/record.h"

namespace pliant::record {

/// One worker's records, or those of an agent or a coordinator. Threads: one.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// Never fails and never waits: training goes on without its records.
  virtual void write(const Line& line) = 0;
};

/// Appends lines to one file; each is written with one call, so that a kill leaves at most one torn line at the end.
/// What cannot be written is one warning.
class Recorder final : public RecordSink {
 public:
  /// Creates `dir` if needed, and `dir`/`name`.jsonl with `mode`; appends if it is there, in place of a torn line at
  /// its end. Code::refused if other users could have prepared, or can change, what is there (base/own_files.h).
  static Result<std::unique_ptr<Recorder>> open(const std::string& dir, const std::string& name, mode_t mode = 0600);
  ~Recorder() override;
  void write(const Line& line) override;

 private:
  class Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A log in memory: what a file would hold.
struct MemoryLog {
  std::string name;
  std::vector<Line> lines;
};

/// Appends to a log that outlives it.
class MemorySink final : public RecordSink {
 public:
  explicit MemorySink(MemoryLog& log) : log_(log) {}
  void write(const Line& line) override { log_.lines.push_back(line); }

 private:
  MemoryLog& log_;
};

}  // namespace pliant::record
