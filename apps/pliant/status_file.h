// status.json: what `pliant status` shows, in the job's directory.
#pragma once

#include <optional>
#include <string>

#include "apps/pliant/status_line.h"

namespace pliant::cli {

inline constexpr char kStatusFile[] = "/status.json";

std::string status_text(const Snapshot& now);
/// Nothing if the file is not there yet or is not one of ours.
std::optional<Snapshot> read_status(const std::string& job_dir);

}  // namespace pliant::cli
