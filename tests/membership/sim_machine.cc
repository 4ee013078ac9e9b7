#include "membership/sim_machine.h"

namespace pliant::membership::sim {
namespace {

/// Turns every refusal of `message` into consent.
void consent(Decision& out, const Agreement& message, const Member& member) {
  for (auto& letter : out.letters) {
    if (!std::holds_alternative<wire::Decline>(letter.message)) continue;
    if (const auto* claim = std::get_if<wire::Claim>(&message))
      letter.message = wire::Promise{claim->term, notice_of(member.view()), 0, {}};
    else if (const auto* proposal = std::get_if<wire::Propose>(&message))
      letter.message = wire::Stored{proposal->term, view_from(proposal->view).or_throw().hash()};
  }
}

void forget_stored(Decision& out) {
  for (auto& letter : out.letters)
    if (auto* promise = std::get_if<wire::Promise>(&letter.message)) promise->stored = {};
}

}  // namespace

Decision Machine::on_lost(Id id, bool proven, Nanos now) {
  return member_.on_lost(id, proven || mutation_ == Mutation::minority, now);
}

Decision Machine::on_message(Id from, const Agreement& message, Nanos now) {
  const bool claim = std::holds_alternative<wire::Claim>(message);
  const bool proposal = std::holds_alternative<wire::Propose>(message);
  // Done wrong, a copy answers: what it says does not bind the member.
  if (mutation_ == Mutation::lower_terms && member_.recovering() && (claim || proposal)) {
    auto out = Member(member_).on_message(from, message, now);
    consent(out, message, member_);
    return out;
  }
  if (mutation_ == Mutation::forget_stored && proposal) return Member(member_).on_message(from, message, now);
  auto out = member_.on_message(from, message, now);
  if (mutation_ == Mutation::forget_stored) forget_stored(out);
  return out;
}

Decision Machine::adopt(const View& view, Nanos now) {
  const auto before = member_.view();
  auto out = member_.adopt(view, now);
  if (mutation_ != Mutation::hasty_switch) return out;
  for (const auto& other : before.members) {
    if (out.enter || out.evicted || member_.recovering()) break;
    auto more = member_.on_message(other.id, wire::Stored{before.term, view.hash()}, now);
    out.letters.insert(out.letters.end(), more.letters.begin(), more.letters.end());
    out.enter = more.enter;
    out.fence |= more.fence;
  }
  return out;
}

}  // namespace pliant::membership::sim
