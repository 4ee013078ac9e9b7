// The steps in a folder of records, read while the job writes them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "apps/pliant/chaos_gaps.h"

namespace pliant::cli::chaos {

class Trail {
 public:
  /// An empty folder's name: nothing is ever read.
  explicit Trail(std::string dir) : dir_(std::move(dir)) {}

  /// Reads what is new. A line counts once its newline is there.
  void poll();

  /// A worker's last step.
  struct Last {
    double t = 0;  ///< Unix seconds
    std::uint64_t step = 0;
    std::pair<std::uint64_t, std::uint64_t> view{};  ///< lineage and view
  };
  std::optional<Last> last_of(std::uint64_t worker) const;
  const StepTimes& steps() const { return steps_; }
  /// The last step of anybody.
  std::optional<std::uint64_t> newest() const;
  const std::string& dir() const { return dir_; }

 private:
  struct File {
    std::uint64_t read = 0;
    std::string torn;  // the beginning of a line that is still being written
  };
  void read(const std::string& path, File& file);
  void take(const std::string& line);

  std::string dir_;
  std::map<std::string, File> files_;
  std::map<std::uint64_t, Last> last_;
  StepTimes steps_;
};

}  // namespace pliant::cli::chaos
