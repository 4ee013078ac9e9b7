// What must be undone whatever happens: processes that are stopped, links that are cut.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "apps/pliant/process.h"
#include "base/fd.h"
#include "base/result.h"

namespace pliant::cli::chaos {

struct Undo {
  enum class What { resume, thaw, command };
  What what = What::resume;
  ProcessId process{};    ///< of resume and thaw
  std::string cgroup{};   ///< of thaw: the frozen one, removed afterwards
  std::string former{};   ///< of thaw: where the process was before
  std::string command{};  ///< for /bin/sh; no newlines
};
/// Does it, and waits for it.
void perform(const Undo& undo);

std::string undo_text(const Undo& undo);
std::optional<Undo> undo_from(const std::string& text);

/// A process of its own that performs what is left on its list once this process is gone, even if that was killed.
class Guard {
 public:
  /// REQUIRES: this process has one thread.
  static Result<Guard> start();
  Guard(Guard&&) = default;
  Guard& operator=(Guard&&) = default;
  /// Ends the guard; it performs what is left.
  ~Guard() = default;

  /// To be called before the thing itself is done.
  void keep(std::uint64_t number, const Undo& undo);
  /// It was undone.
  void drop(std::uint64_t number);

 private:
  explicit Guard(Fd pipe) : pipe_(std::move(pipe)) {}
  void tell(std::string line);
  Fd pipe_;
};

}  // namespace pliant::cli::chaos
