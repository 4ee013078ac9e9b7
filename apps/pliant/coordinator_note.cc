#include "apps/pliant/coordinator_note.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace pliant::cli {
namespace {

using nlohmann::json;

json to_json(const membership::View& view) {
  json members = json::array();
  for (const auto& member : view.members)
    members.push_back({{"id", member.id},
                       {"pid", member.pid},
                       {"address", member.address},
                       {"host", member.host},
                       {"endpoint", member.endpoint}});
  return {
      {"term", view.term}, {"epoch", view.epoch}, {"seed", view.seed}, {"planned", view.planned}, {"members", members}};
}

membership::View view_from(const json& from) {
  membership::View view{from.at("term"), from.at("epoch"), from.at("seed"), from.at("planned"), {}};
  for (const auto& member : from.at("members"))
    view.members.push_back(
        {member.at("id"), member.at("pid"), member.at("address"), member.at("host"), member.at("endpoint")});
  return view;
}

}  // namespace

std::string note_text(const CoordinatorNote& note) {
  const auto& memory = note.memory;
  json all = {{"process", {{"pid", note.process.pid}, {"start", note.process.start}}},
              {"view", to_json(memory.view)},
              {"wanted", memory.wanted},
              {"spare", memory.spare},
              {"next_id", memory.next_id},
              {"restarts", memory.restarts}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<CoordinatorNote> read_note(const std::string& job_dir) {
  std::ifstream file(job_dir + kNoteFile);
  std::ostringstream text;
  text << file.rdbuf();
  return note_from(text.str());
}

std::optional<CoordinatorNote> note_from(const std::string& text) {
  try {
    auto all = json::parse(text);
    CoordinatorNote note;
    note.process = {all.at("process").at("pid").get<pid_t>(), all.at("process").at("start").get<std::uint64_t>()};
    note.memory.view = view_from(all.at("view"));
    note.memory.wanted = all.at("wanted");
    note.memory.spare = all.at("spare");
    note.memory.next_id = all.at("next_id");
    note.memory.restarts = all.at("restarts");
    return note;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace pliant::cli
