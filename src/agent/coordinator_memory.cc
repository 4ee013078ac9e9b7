#include "agent/coordinator_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pliant::agent {
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

std::string memory_text(const membership::Memory& memory) {
  json all = {{"view", to_json(memory.view)}, {"wanted", memory.wanted},
              {"spare", memory.spare},        {"next_id", memory.next_id},
              {"restarts", memory.restarts},  {"stopping", static_cast<int>(memory.stopping)}};
  all["outcomes"] = json::array();
  for (const auto& [id, outcome] : memory.outcomes)
    all["outcomes"].push_back({{"id", id}, {"outcome", static_cast<int>(outcome)}});
  all["ended"] = json::array();
  for (const auto& [id, view] : memory.ended) all["ended"].push_back({{"id", id}, {"view", view}});
  all["invited"] = json::array();
  for (const auto& [id, host] : memory.invited) all["invited"].push_back({{"id", id}, {"host", host}});
  all["hosts"] = memory.hosts;
  if (memory.said) all["said"] = {{"outcome", memory.said->outcome}, {"reason", memory.said->reason}};
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<membership::Memory> memory_from(const std::string& text) {
  try {
    auto all = json::parse(text);
    membership::Memory memory;
    memory.view = view_from(all.at("view"));
    memory.wanted = all.at("wanted");
    memory.spare = all.at("spare");
    memory.next_id = all.at("next_id");
    memory.restarts = all.at("restarts");
    memory.stopping = std::min(all.at("stopping").get<wire::Stopping>(), wire::Stopping::at_once);
    for (const auto& each : all.at("outcomes"))
      memory.outcomes[each.at("id")] = wire::outcome_in(each.at("outcome").get<std::uint8_t>());
    for (const auto& each : all.at("ended")) memory.ended[each.at("id")] = each.at("view").get<std::uint64_t>();
    for (const auto& each : all.at("invited")) memory.invited[each.at("id")] = each.at("host").get<std::string>();
    memory.hosts = all.at("hosts").get<std::set<std::string>>();
    if (auto said = all.find("said"); said != all.end())
      memory.said = wire::Over{said->at("outcome").get<std::uint8_t>(), said->at("reason").get<std::string>()};
    return memory;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace pliant::agent
