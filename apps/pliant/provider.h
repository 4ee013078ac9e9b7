// Where a job's workers are had from: processes on this machine, nodes of a Slurm cluster, or either of them within
// what a trace says.
//
// A provider counts in slots: places for one worker each. It is told how many the job could use, and takes its time;
// what it really has shows as agents that come and go at the coordinator. Nothing here ever waits, throws or ends a
// job: a provider that refuses, lies or does not answer says so once, tries again later, and the job goes on as it is.
//
//   the job could use more slots      request(n)   soon, later or never there are n
//   the job has more than it needs    release(n)   who is there too many gets a notice, and then has to go
//   the provider takes something back on_notice    its agent hears of it as well: its workers leave after their step
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace pliant::cli {

struct ProviderEvents {
  /// Somebody will be taken away: who, and after how many seconds. For people and records.
  std::function<void(const std::string& who, double seconds)> on_notice;
  /// A line for people: something begins to go wrong, or goes well again.
  std::function<void(const std::string& line)> on_trouble;
  /// Capacity or price are not what they were.
  std::function<void()> on_change;
};

class Provider {
 public:
  virtual ~Provider() = default;
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  /// Slots that it has, or could have now as far as it knows; nothing: it does not know.
  virtual std::optional<std::uint32_t> capacity() const = 0;
  /// So many slots are of use, in all.
  virtual void request(std::uint32_t slots) = 0;
  /// No more than so many are of use, in all: gives back the rest, with notice. Also what was only asked for.
  virtual void release(std::uint32_t slots) = 0;
  /// Of a slot's hour, now; nothing: it does not say.
  virtual std::optional<double> price() const = 0;
  /// Gives back everything, at once.
  virtual void end() = 0;
};

}  // namespace pliant::cli
