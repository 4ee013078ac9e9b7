#include "apps/pliant/coordinator_note.h"

#include <nlohmann/json.hpp>

#include "agent/coordinator_memory.h"
#include "apps/pliant/job_dir.h"

namespace pliant::cli {

using nlohmann::json;

std::string note_text(const CoordinatorNote& note) {
  auto all = json::parse(agent::memory_text(note.memory));
  all["process"] = {{"pid", note.process.pid}, {"start", note.process.start}};
  return all.dump(2) + "\n";
}

std::optional<CoordinatorNote> read_note(const std::string& job_dir) {
  auto text = read_job_file(job_dir, kNoteFile);
  return text ? note_from(*text) : std::nullopt;
}

std::optional<CoordinatorNote> note_from(const std::string& text) {
  auto memory = agent::memory_from(text);
  if (!memory) return std::nullopt;
  try {
    auto process = json::parse(text).at("process");
    return CoordinatorNote{{process.at("pid").get<pid_t>(), process.at("start").get<std::uint64_t>()}, *memory};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace pliant::cli
