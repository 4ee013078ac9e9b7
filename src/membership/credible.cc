#include "membership/credible.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace pliant::membership {
namespace {

using Maybe = std::optional<Objection>;

Maybe object_to_height(const char* what, std::uint64_t height, std::uint64_t known) {
  if (height <= known || height - known <= kFar) return std::nullopt;
  return Objection{height - known > kAbsurd,
                   fmt::format("a letter with {} {}, where {} is known", what, height, known)};
}

Maybe object_to_term(std::uint64_t term, const Knowledge& known) {
  return object_to_height("term", term, std::max(known.promised, known.view.term));
}

/// `notice` may say that there is none.
Maybe object_to_view(const wire::ViewNotice& notice, const Knowledge& known) {
  if (notice.epoch == 0 && notice.members.empty()) return std::nullopt;
  auto view = view_from(notice);
  if (!view.ok()) return Objection{true, view.error().message};
  if (!known.view.members.empty() && view.value().seed != known.view.seed)
    return Objection{true, fmt::format("view {} of a job with another seed", notice.epoch)};
  auto rank = view.value().rank_of(known.self.id);
  // With another process number it would be one that had this worker's id before.
  if (rank >= 0 && notice.members[rank].pid == known.self.pid && notice.members[rank].host != known.self.host)
    return Objection{true, fmt::format("view {} with this worker on another host", notice.epoch)};
  if (auto far = object_to_height("epoch", notice.epoch, known.view.epoch)) return far;
  return object_to_term(notice.term, known);
}

const wire::Member* member_of(const View& view, std::uint64_t id) {
  auto rank = view.rank_of(id);
  return rank < 0 ? nullptr : &view.members[rank];
}

Maybe object(std::uint64_t, const wire::Claim& claim, const Knowledge& known) {
  return object_to_term(claim.term, known);
}

Maybe object(std::uint64_t, const wire::Stored& stored, const Knowledge& known) {
  return object_to_term(stored.term, known);
}

Maybe object(std::uint64_t, const wire::Promise& promise, const Knowledge& known) {
  if (auto term = object_to_term(std::max(promise.term, promise.stored_under), known)) return term;
  if (auto view = object_to_view(promise.view, known)) return view;
  return object_to_view(promise.stored, known);
}

template <class WithView>  // Decline, Propose or InForce
Maybe object(std::uint64_t, const WithView& letter, const Knowledge& known) {
  if (auto term = object_to_term(letter.term, known)) return term;
  return object_to_view(letter.view, known);
}

Maybe object(std::uint64_t from, const wire::Entered& entered, const Knowledge& known) {
  if (auto view = object_to_view(entered.view, known)) return view;
  auto view = view_from(entered.view);
  if (!view.ok() || view.value().hash() != entered.view_hash || view.value().rank_of(from) < 0)
    return Objection{
        true, fmt::format("that it has entered view {}, which is another one, or without it", entered.view.epoch)};
  return std::nullopt;
}

/// Whoever is not in this worker's view may be in a later one.
Maybe object(std::uint64_t from, const wire::Dead& dead, const Knowledge& known) {
  const auto* witness = member_of(known.view, from);
  const auto* died = member_of(known.view, dead.id);
  if (!witness || !died || witness->host == died->host) return std::nullopt;
  return Objection{true, fmt::format("that worker {} is dead, which is on another host than its own", dead.id)};
}

}  // namespace

std::optional<Objection> objection_to(std::uint64_t from, const wire::Message& letter, const Knowledge& known) {
  return std::visit(
      [&](const auto& kind) -> Maybe {
        using Kind = std::decay_t<decltype(kind)>;
        constexpr bool kJudged = std::is_same_v<Kind, wire::Claim> || std::is_same_v<Kind, wire::Promise> ||
                                 std::is_same_v<Kind, wire::Decline> || std::is_same_v<Kind, wire::Propose> ||
                                 std::is_same_v<Kind, wire::Stored> || std::is_same_v<Kind, wire::InForce> ||
                                 std::is_same_v<Kind, wire::Entered> || std::is_same_v<Kind, wire::Dead>;
        if constexpr (kJudged)
          return object(from, kind, known);
        else
          return std::nullopt;
      },
      letter);
}

}  // namespace pliant::membership
