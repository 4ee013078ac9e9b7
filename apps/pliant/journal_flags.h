// What a job writes down: --record, --checkpoint, --every, --keep, --file-mode, --resume. The workers read it from
// their environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/pliant/command.h"

namespace pliant::cli {

struct JournalFlags {
  std::string record;
  std::string checkpoint;
  std::string every;
  int keep = 0;
  std::string mode;  ///< of the files; empty: 0600
  std::string resume;
};
void add_journal_flags(CLI::App& run, JournalFlags& flags);
/// KEY=VALUE for the workers; folders are made absolute. Failure for flags that contradict each other, and for folders
/// that cannot be used, before anything is started.
std::vector<std::string> journal_environment(const JournalFlags& flags);

}  // namespace pliant::cli
