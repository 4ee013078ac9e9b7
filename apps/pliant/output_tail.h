// Follows the files that workers write their output to, and copies whole lines to the agent's console.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/pliant/console.h"
#include "base/fd.h"
#include "base/result.h"

namespace pliant::cli {

enum class OutputMode {
  prefix,  ///< every line of every worker, after "[rank] "
  raw,     ///< the same without prefix
  rank0,   ///< only worker 0's, without prefix
  quiet,   ///< nothing; the files still have it
};

/// One file of one worker.
class OutputTail {
 public:
  /// From the file's beginning, or only what comes from now on.
  static Result<OutputTail> open(const std::string& path, Stream stream, std::string prefix, bool from_now = false);

  /// Copies lines that are complete by now, at most about 64 KiB, unless the console is full.
  void poll(Console& console);
  /// Copies what is there including a last line without its end. True once nothing is left.
  bool drain(Console& console);

 private:
  OutputTail(Fd file, Stream stream, std::string prefix, std::uint64_t offset)
      : file_(std::move(file)), stream_(stream), prefix_(std::move(prefix)), offset_(offset) {}
  bool read_more(Console& console);

  Fd file_;
  Stream stream_;
  std::string prefix_;
  std::uint64_t offset_ = 0;
  std::string partial_;  // the begin of a line whose end is not there yet
};

/// The last `lines` lines of a file, each cut at a sane length; empty if there is nothing but blank space.
std::vector<std::string> last_lines(const std::string& path, std::size_t lines);

}  // namespace pliant::cli
