// Processes in frozen cgroups (version 2).
#pragma once

#include <cstdint>

#include "apps/pliant/chaos_undo.h"
#include "apps/pliant/process.h"
#include "base/result.h"

namespace pliant::cli::chaos {

/// Whether this process may freeze others: Code::refused with the reason if not.
Status check_freezer();
/// Makes a cgroup below the process's own, and says how all of it is undone. Nothing is frozen yet.
Result<Undo> make_freezer(const ProcessId& process, std::uint64_t number);
/// Moves the process there and freezes it.
Status freeze(const Undo& freezer);

}  // namespace pliant::cli::chaos
