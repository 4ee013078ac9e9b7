#include "membership/view.h"

#include <set>

#include "base/hash.h"

namespace pliant::membership {

int View::rank_of(std::uint64_t id) const {
  for (int rank = 0; rank < size(); ++rank)
    if (members[rank].id == id) return rank;
  return -1;
}

std::uint64_t View::hash() const {
  auto hash = combine(combine(combine(combine(hash_name("view"), term), epoch), seed), planned);
  for (const auto& member : members) {
    hash = combine(hash, member.id);
    hash = combine(hash, static_cast<std::uint64_t>(member.pid));
    for (const auto* text : {&member.address, &member.host, &member.endpoint}) hash = combine(hash, hash_name(*text));
  }
  return hash;
}

Result<View> view_from(const wire::ViewNotice& notice) {
  std::set<std::uint64_t> ids;
  for (const auto& member : notice.members) ids.insert(member.id);
  if (ids.empty() || ids.size() != notice.members.size() || notice.epoch == 0)
    return Error{Code::protocol, "a view with no members, a repeated member or no epoch"};
  return View{notice.term, notice.epoch, notice.seed, notice.planned, notice.members};
}

wire::ViewNotice notice_of(const View& view) { return {view.term, view.epoch, view.seed, view.planned, view.members}; }

}  // namespace pliant::membership
