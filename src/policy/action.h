// Actions on their way: as bytes, in words, and whether they can be.
#pragma once

#include <pliant/policy.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace pliant::policy {

inline constexpr std::size_t kLongestText = 400;
inline constexpr std::size_t kLongestName = 100;

std::string encode(const Action& action);
Result<Action> decode_action(std::string_view bytes);
/// "4 workers, a batch of 512": for people.
std::string describe(const Action& action);
/// Why nobody could do that; empty if somebody could.
std::string objection_to(const Action& action);

}  // namespace pliant::policy
