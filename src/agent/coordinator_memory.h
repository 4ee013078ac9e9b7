// A coordinator's memory as text, for the next one to read: in a file, or in a store outside of the job.
#pragma once

#include <optional>
#include <string>

#include "membership/coordinator.h"

namespace pliant::agent {

/// JSON, which may hold other fields beside these.
std::string memory_text(const membership::Memory& memory);
/// Nothing if that is not one of ours.
std::optional<membership::Memory> memory_from(const std::string& text);

}  // namespace pliant::agent
