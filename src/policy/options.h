// The options of a policy by name: "max=16,every=epoch,2x100".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pliant::policy {

/// Words between commas; what has a "=" is an option. Failure(Code::invalid) for what makes no sense.
class Options {
 public:
  explicit Options(std::string_view text);

  /// Each of these takes its option away; refuse_rest() then names what nobody asked for.
  double number(const std::string& name, double otherwise);
  std::uint64_t count(const std::string& name, std::uint64_t otherwise);
  /// One of `choices`; the first one if it was not given.
  std::string choice(const std::string& name, const std::vector<std::string>& choices);
  /// Empty if it was not given.
  std::string text(const std::string& name);
  std::vector<double> numbers(const std::string& name);
  std::vector<std::string> words();
  void refuse_rest() const;

 private:
  std::multimap<std::string, std::string> values_;
  std::vector<std::string> words_;
};

/// "2x100": so many, for so long.
struct Stage {
  std::uint64_t amount = 0, length = 0;
};
Stage parse_stage(const std::string& text);

}  // namespace pliant::policy
