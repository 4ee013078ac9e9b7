#include "membership/sim_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pliant::membership::sim {
namespace {

std::string words(const Agreement& message) {
  struct Words {
    std::string operator()(const wire::Claim& m) {
      return fmt::format("claim {}{}", m.term, m.recover ? "" : " to plan");
    }
    std::string operator()(const wire::Promise& m) {
      return fmt::format("promise {} at {}.{} stored {}.{} under {}", m.term, m.view.epoch, m.view.term, m.stored.epoch,
                         m.stored.term, m.stored_under);
    }
    std::string operator()(const wire::Decline& m) {
      return fmt::format("decline {} at {}.{}", m.term, m.view.epoch, m.view.term);
    }
    std::string operator()(const wire::Propose& m) {
      return fmt::format("propose {} {}", m.term,
                         text_of({m.view.term, m.view.epoch, m.view.seed, m.view.planned, m.view.members}));
    }
    std::string operator()(const wire::Stored& m) { return fmt::format("stored {} {:x}", m.term, m.hash & 0xffff); }
    std::string operator()(const wire::InForce& m) {
      return fmt::format("in force {}",
                         text_of({m.view.term, m.view.epoch, m.view.seed, m.view.planned, m.view.members}));
    }
  };
  return std::visit(Words{}, message);
}

}  // namespace

Samples Ledger::lease(int rank) const {
  Samples mine;
  int skip = rank * kBatch, take = kBatch;
  for (std::size_t i = 0; i < kSamples && take > 0; ++i) {
    if (!left[i] || skip-- > 0) continue;
    mine.set(i);
    --take;
  }
  return mine;
}

bool Ledger::consume(const Samples& samples) {
  if ((samples & ~left).any()) return false;
  left &= ~samples;
  if (left.none()) ++epoch, left.set();
  return true;
}

std::string text_of(const View& view) {
  std::vector<Id> ids;
  for (const auto& member : view.members) ids.push_back(member.id);
  return fmt::format("view {}.{} {{{}}} {:x}", view.epoch, view.term, fmt::join(ids, " "), view.hash() & 0xffff);
}

std::string text_of(const Payload& payload) {
  struct Words {
    std::string operator()(const Agreement& m) { return words(m); }
    std::string operator()(const Row& m) {
      return fmt::format("row {} of {:x}{}{}{}", m.step, m.view & 0xffff, m.contributes ? "" : ", nothing",
                         m.outlook.leaving != Leaving::no ? ", leaves" : "", m.outlook.plan != 0 ? ", has a plan" : "");
    }
    std::string operator()(const Entered& m) {
      return fmt::format("entered {} at step {}{}{}{}", text_of(m.view), m.report.step,
                         m.report.in_step ? ", in it" : "",
                         m.report.closed     ? ", closed"
                         : m.report.complete ? ", complete"
                                             : "",
                         m.report.blank ? ", blank" : "");
    }
    std::string operator()(const Confirm& m) { return fmt::format("has step {} of {:x}", m.step, m.view & 0xffff); }
    std::string operator()(const StateCopy& m) { return fmt::format("state of {} steps", m.log.size()); }
    std::string operator()(const Heartbeat& m) { return fmt::format("heartbeat {}", m.epoch); }
    std::string operator()(const Reset&) { return "reset"; }
    std::string operator()(const Wish&) { return "wish"; }
    std::string operator()(const wire::Plan& m) {
      return fmt::format("plan {} {}", m.term,
                         text_of({m.view.term, m.view.epoch, m.view.seed, m.view.planned, m.view.members}));
    }
    std::string operator()(const wire::Adopted& m) { return fmt::format("adopted epoch {}", m.view.epoch); }
  };
  return std::visit(Words{}, payload);
}

}  // namespace pliant::membership::sim
