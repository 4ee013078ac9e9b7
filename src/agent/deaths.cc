#include "agent/deaths.h"

#include <algorithm>

namespace pliant::agent {

std::optional<Death> Deaths::explain(std::uint64_t id, bool goodbye) {
  auto at = std::ranges::find_if(unexplained_, [&](const Open& open) { return open.death.id == id; });
  if (at == unexplained_.end()) return std::nullopt;
  auto death = at->death;
  unexplained_.erase(at);
  if (goodbye) return std::nullopt;
  return death;
}

std::optional<Death> Deaths::overdue(Nanos now) {
  if (unexplained_.empty() || now < unexplained_.front().until) return std::nullopt;
  return explain(unexplained_.front().death.id, false);
}

void Deaths::told(std::uint64_t id, bool heard, Nanos now) {
  if (heard) unanswered_.insert(id);
  told_at_ = now;
}

}  // namespace pliant::agent
