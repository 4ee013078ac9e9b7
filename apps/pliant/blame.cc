#include "apps/pliant/blame.h"

#include <algorithm>
#include <tuple>

namespace pliant::cli {

std::optional<Death> first_to_blame(const std::vector<Death>& deaths, const std::vector<Accusation>& accusations) {
  auto accused = [&](int rank) {
    return std::any_of(accusations.begin(), accusations.end(), [&](const auto& word) { return word.rank == rank; });
  };
  auto accuses_another = [&](int rank) {
    return std::any_of(accusations.begin(), accusations.end(),
                       [&](const auto& word) { return word.by == rank && word.rank != rank; });
  };
  auto order = [&](const Death& death) {
    return std::tuple(!accused(death.rank), death.turn, accuses_another(death.rank), death.rank);
  };
  auto first = std::min_element(deaths.begin(), deaths.end(),
                                [&](const Death& a, const Death& b) { return order(a) < order(b); });
  if (first == deaths.end()) return std::nullopt;
  return *first;
}

}  // namespace pliant::cli
