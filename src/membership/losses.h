// Who is lost to a member, as far as it knows. A suspicion may end; a death does not, but it is forgotten when it can
// concern nobody any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "wire/messages.h"

namespace pliant::membership {

class Losses {
 public:
  /// `proven`: its process is gone, by a kernel's word; it was in the view `last`. What is known already stays: proof
  /// is not taken back, and the later view counts.
  void note(std::uint64_t id, bool proven, wire::LastView last) {
    auto& known = lost_[id];
    known.proven = known.proven || proven;
    known.last = std::max(known.last, last);
    known.settled_without = false;
  }
  /// By its own word it has fallen out of the view with this epoch, and will never act in it again.
  void note_out(std::uint64_t id, std::uint64_t epoch) { lost_[id].out_of = epoch; }
  bool is_out_of(std::uint64_t id, std::uint64_t epoch) const {
    auto lost = lost_.find(id);
    return lost != lost_.end() && lost->second.out_of == epoch;
  }
  /// Suspected, dead, or out.
  bool contains(std::uint64_t id) const { return lost_.contains(id); }
  bool ended(std::uint64_t id) const {
    auto lost = lost_.find(id);
    return lost != lost_.end() && lost->second.proven;
  }
  /// The view that it was in.
  wire::LastView last_view_of(std::uint64_t id) const {
    auto lost = lost_.find(id);
    return lost == lost_.end() ? wire::LastView() : lost->second.last;
  }
  /// It is dead, was last in the view with this epoch, and has not voted on what follows it.
  bool died_unvoted_in(std::uint64_t id, std::uint64_t epoch) const {
    return ended(id) && last_view_of(id) == wire::LastView(epoch, true);
  }
  /// It speaks: it is not suspected any more, unless it is dead, and this comes late. Whoever is out stays so.
  void heard_from(std::uint64_t id) {
    auto lost = lost_.find(id);
    if (lost != lost_.end() && !lost->second.proven && lost->second.out_of == 0) lost_.erase(lost);
  }
  /// Suspicions of these ids are out of date.
  template <class Which>
  void drop_suspicions(const Which& which) {
    std::erase_if(lost_, [&](const auto& lost) { return !lost.second.proven && which(lost.first); });
  }
  /// The member has settled in another view. The dead that were of no interest the last time, and are of none now, are
  /// forgotten: a plan that names a dead newcomer may come true in the view after the one in which the death is heard
  /// of, because members have agreed on it before; a later one needs the word of this member, who cannot reach it.
  template <class AtHand>
  void on_settled(const AtHand& at_hand) {
    for (auto at = lost_.begin(); at != lost_.end();) {
      auto& [id, loss] = *at;
      bool of_no_interest = loss.proven && !at_hand(id);
      bool before = std::exchange(loss.settled_without, of_no_interest);
      at = before && of_no_interest ? lost_.erase(at) : std::next(at);
    }
  }
  std::size_t size() const { return lost_.size(); }

 private:
  struct Loss {
    bool proven = false;
    bool settled_without = false;  // the last view that was settled in had nothing to do with it
    wire::LastView last;
    std::uint64_t out_of = 0;  // the epoch of a view; 0: none
  };
  std::map<std::uint64_t, Loss> lost_;
};

}  // namespace pliant::membership
