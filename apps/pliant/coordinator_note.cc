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
  return {{"term", view.term},         {"epoch", view.epoch},
          {"seed", view.seed},         {"planned", view.planned},
          {"members", members},        {"newcomers", view.newcomers},
          {"restarts", view.restarts}, {"resume_step", view.resume_step}};
}

membership::View view_from(const json& from) {
  membership::View view{from.at("term"), from.at("epoch"), from.at("seed"), from.at("planned"), {}};
  view.newcomers = from.at("newcomers").get<std::vector<std::uint64_t>>();
  view.restarts = from.at("restarts");
  view.resume_step = from.at("resume_step");
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
              {"restarts", memory.restarts},
              {"stopping", memory.stopping}};
  all["outcomes"] = json::array();
  for (const auto& [id, outcome] : memory.outcomes)
    all["outcomes"].push_back({{"id", id}, {"outcome", static_cast<int>(outcome)}});
  all["ended"] = json::array();
  for (const auto& [id, view] : memory.ended) all["ended"].push_back({{"id", id}, {"view", view}});
  all["invited"] = memory.invited;
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
    note.memory.stopping = all.at("stopping");
    for (const auto& each : all.at("outcomes"))
      note.memory.outcomes[each.at("id")] = wire::outcome_in(each.at("outcome").get<std::uint8_t>());
    for (const auto& each : all.at("ended")) note.memory.ended[each.at("id")] = each.at("view").get<std::uint64_t>();
    note.memory.invited = all.at("invited").get<std::set<std::uint64_t>>();
    return note;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace pliant::cli
