// Views and letters, for tests that deliver each message by hand.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "membership/member.h"

namespace pliant::membership {

inline constexpr Nanos kNow{0};

inline View view_of(std::uint64_t term, std::uint64_t epoch, const std::vector<std::uint64_t>& ids) {
  View view{term, epoch, 42, 0, {}};
  for (auto id : ids) view.members.push_back({id, 0, "@" + std::to_string(id)});
  return view;
}

inline const View kView = view_of(1, 1, {1, 2, 3});
inline const View kLarge = view_of(1, 1, {1, 2, 3, 4, 5});
inline const View kNone;

/// The only letter to `to` that is a T.
template <class T>
T letter_to(const Decision& decision, std::uint64_t to) {
  const T* found = nullptr;
  for (const auto& letter : decision.letters)
    if (letter.to == to && std::holds_alternative<T>(letter.message)) {
      EXPECT_EQ(found, nullptr) << "two letters";
      found = &std::get<T>(letter.message);
    }
  EXPECT_NE(found, nullptr) << "no such letter to " << to;
  return found != nullptr ? *found : T{};
}

template <class T>
std::set<std::uint64_t> receivers_of(const Decision& decision) {
  std::set<std::uint64_t> ids;
  for (const auto& letter : decision.letters)
    if (std::holds_alternative<T>(letter.message)) ids.insert(letter.to);
  return ids;
}

using Ids = std::set<std::uint64_t>;

inline Ids ids_of(const View& view) {
  Ids ids;
  for (const auto& member : view.members) ids.insert(member.id);
  return ids;
}

inline wire::Promise promise(std::uint64_t term, const View& view) { return {term, notice_of(view), 0, {}}; }
inline wire::Propose proposal(std::uint64_t term, const View& view) { return {term, notice_of(view)}; }
inline wire::InForce in_force(const View& view) { return {view.term, notice_of(view)}; }
inline View view_in(const wire::ViewNotice& notice) { return view_from(notice).or_throw(); }

/// Recovering under a claim of `from`.
inline Member follower(std::uint64_t self, const View& view, std::uint64_t from, std::uint64_t term) {
  Member member(self, view);
  (void)member.on_message(from, wire::Claim{term, 1}, kNow);
  return member;
}

}  // namespace pliant::membership
