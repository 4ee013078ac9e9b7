// coordinator.json: who coordinates a job, and what the next one must know. In the job's directory.
#pragma once

#include <optional>
#include <string>

#include "apps/pliant/process.h"
#include "membership/coordinator.h"

namespace pliant::cli {

inline constexpr char kNoteFile[] = "/coordinator.json";

struct CoordinatorNote {
  ProcessId process;
  membership::Memory memory;
};

std::string note_text(const CoordinatorNote& note);
std::optional<CoordinatorNote> note_from(const std::string& text);
/// Nothing if the file is not there or is not one of ours.
std::optional<CoordinatorNote> read_note(const std::string& job_dir);

}  // namespace pliant::cli
