// JSON in the answers of servers that are strangers: nothing throws, and what is not there is null.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace pliant::net {

/// Discarded if it is none.
inline nlohmann::json parse_json(std::string_view text) {
  constexpr int kDeepest = 16;  // of the answers that we know, none is half as deep
  using nlohmann::json;
  // Too deep: left out, so that it is missed like anything else that is not there.
  return json::parse(
      text, [](int depth, json::parse_event_t, const json&) { return depth <= kDeepest; }, false);
}

/// Null if there is none.
inline const nlohmann::json& member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNone;
  if (!object.is_object()) return kNone;
  auto at = object.find(name);
  return at == object.end() ? kNone : *at;
}

}  // namespace pliant::net
