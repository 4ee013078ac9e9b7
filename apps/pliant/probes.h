// What `pliant doctor` looks at. Every probe is independent, changes nothing that lasts and never throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pliant::cli {

struct Finding {
  enum class Level { ok, warn, problem };
  std::string name;
  Level level = Level::ok;
  std::string detail;
  std::string advice;  ///< what to do about it; empty if all is well
};

std::string_view name_of(Finding::Level level);

std::vector<Finding> probe_all();

}  // namespace pliant::cli
