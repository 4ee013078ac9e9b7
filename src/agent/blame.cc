#include "agent/blame.h"

#include <algorithm>
#include <tuple>

namespace pliant::agent {

std::optional<Death> first_to_blame(const std::vector<Death>& deaths) {
  auto order = [](const Death& death) { return std::tuple(death.turn, death.id); };
  auto first = std::min_element(deaths.begin(), deaths.end(),
                                [&](const Death& a, const Death& b) { return order(a) < order(b); });
  if (first == deaths.end()) return std::nullopt;
  return *first;
}

}  // namespace pliant::agent
