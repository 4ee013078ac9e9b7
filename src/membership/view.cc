#include "membership/view.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/hash.h"

namespace pliant::membership {

int View::rank_of(std::uint64_t id) const {
  for (int rank = 0; rank < size(); ++rank)
    if (members[rank].id == id) return rank;
  return -1;
}

bool View::votes(std::uint64_t id) const { return rank_of(id) >= 0 && !std::ranges::binary_search(newcomers, id); }

void View::remove(const std::function<bool(const wire::Member& member)>& goes) {
  std::erase_if(members, goes);
  std::erase_if(newcomers, [&](auto id) { return rank_of(id) < 0; });
}

std::uint64_t View::hash() const {
  auto hash = combine(combine(combine(combine(hash_name("view"), term), epoch), seed), planned);
  hash = combine(combine(hash, restarts), resume_step);
  for (const auto& member : members) {
    hash = combine(hash, member.id);
    hash = combine(hash, static_cast<std::uint64_t>(member.pid));
    for (const auto* text : {&member.address, &member.host, &member.endpoint}) hash = combine(hash, hash_name(*text));
  }
  for (auto id : newcomers) hash = combine(hash, ~id);
  return hash;
}

std::uint64_t View::members_hash() const {
  auto hash = combine(hash_name("members"), epoch);
  for (const auto& member : members) hash = combine(hash, member.id);
  return hash;
}

Result<View> view_from(const wire::ViewNotice& notice) {
  std::set<std::uint64_t> ids;
  for (const auto& member : notice.members) ids.insert(member.id);
  if (ids.empty() || ids.size() != notice.members.size() || notice.epoch == 0)
    return Error{Code::protocol, "a view with no members, a repeated member or no epoch"};
  const auto& blank = notice.newcomers;
  bool ascending = std::ranges::adjacent_find(blank, std::ranges::greater_equal()) == blank.end();
  if (!ascending || blank.size() >= ids.size() ||
      std::ranges::any_of(blank, [&](auto id) { return !ids.contains(id); }))
    return Error{Code::protocol, "a view without votes, or with newcomers that are not members"};
  return View{notice.term,    notice.epoch,     notice.seed,     notice.planned,
              notice.members, notice.newcomers, notice.restarts, notice.resume_step};
}

wire::ViewNotice notice_of(const View& view) {
  return {view.term,    view.epoch,     view.seed,     view.planned,
          view.members, view.newcomers, view.restarts, view.resume_step};
}

}  // namespace pliant::membership
