// Letters between workers are checked against what their receiver knows before the machine (member.h) hears them: a
// member that is broken, or lies, must not take others with it. What cannot be checked is believed: members agree
// among themselves, and are not proof against one that lies about its own view.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "membership/view.h"
#include "wire/messages.h"

namespace pliant::membership {

/// What a worker knows.
struct Knowledge {
  const wire::Member& self;
  const View& view;            ///< the newest in force; without members: none
  std::uint64_t promised = 0;  ///< the highest term that it has promised
};

struct Objection {
  /// No honest worker says so. Otherwise the letter is only passed over.
  bool offence = true;
  std::string what;  ///< goes on after "it sent"
};

/// Terms and epochs that are so far above what is known are passed over; who says such ones far above that lies. The
/// gap between the two keeps an honest worker that has believed a liar from being taken for one.
inline constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kAbsurd = std::uint64_t{1} << 48;

/// Nothing if the letter may be true:
///  - views have members, each once, votes and a number; they have the job's seed, and this worker where it is
///  - whoever enters a view is in it, and names it by its hash
///  - terms and epochs are in reach of those that are known
///  - of deaths tells whoever shares a host with the dead
std::optional<Objection> objection_to(std::uint64_t from, const wire::Message& letter, const Knowledge& known);

}  // namespace pliant::membership
