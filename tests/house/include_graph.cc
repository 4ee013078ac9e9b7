#include "house/include_graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <sstream>

namespace pliant::house {
namespace {

constexpr std::array<std::string_view, 15> kOrder = {"base",       "data",    "wire",  "net",    "collective",
                                                     "membership", "monitor", "scale", "policy", "record",
                                                     "step",       "session", "agent", "plan",   "torch"};
constexpr std::array<std::string_view, 5> kTorchUsers = {"src/torch/", "include/pliant/torch.h", "examples/", "bench/",
                                                         "tests/torch/"};

std::string first_folder(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

std::optional<std::size_t> place_of(std::string_view folder) {
  auto found = std::ranges::find(kOrder, folder);
  if (found == kOrder.end()) return std::nullopt;
  return found - kOrder.begin();
}

bool is_torch(std::string_view include) {
  return include == "pliant/torch.h" || first_folder(include) == "torch" || first_folder(include) == "ATen" ||
         first_folder(include) == "c10";
}

bool may_use_torch(std::string_view path) {
  return std::ranges::any_of(kTorchUsers, [&](auto user) { return path.starts_with(user); });
}

std::string objection_in_src(const std::string& folder, const Include& include) {
  auto own = place_of(folder);
  if (!own) return "lives in a folder that is not in the order of folders";
  if (!include.quoted) {
    // "base/log.h" in angle brackets would slip past the order.
    auto place = include.path.find('/') == std::string::npos ? std::nullopt : place_of(first_folder(include.path));
    return place && folder != "torch" ? "write includes of src/ in quotes" : "";
  }
  auto place = place_of(first_folder(include.path));
  if (!place || include.path.find('/') == std::string::npos) return "is not named from src/";
  return *place > *own ? "comes after " + folder + " in the order of folders" : "";
}

std::string objection_in_public(const std::string& path, const Include& include) {
  if (include.quoted) return "is quoted: a public header includes no file of src/";
  auto folder = first_folder(include.path);
  bool plain = include.path.find('/') == std::string::npos && !include.path.ends_with(".hpp");
  bool torch = path == "include/pliant/torch.h" && is_torch(include.path);
  return plain || folder == "pliant" || folder == "sys" || torch ? "" : "is neither standard nor ours";
}

std::string objection(const std::string& path, const Include& include) {
  bool quoted_module = include.quoted && place_of(first_folder(include.path));  // "torch/x.h" is src/torch's
  if (is_torch(include.path) && !quoted_module && !may_use_torch(path)) return "is LibTorch's, out of bounds here";
  if (path.starts_with("src/")) return objection_in_src(first_folder(path.substr(4)), include);
  if (path.starts_with("include/")) return objection_in_public(path, include);
  return "";
}

}  // namespace

std::vector<Include> includes_of(std::string_view text) {
  static const std::regex kPattern(R"re(^\s*#\s*include\s*(["<])([^">]+)[">].*)re");
  std::vector<Include> found;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (std::regex_match(line, match, kPattern)) found.push_back({match[2], match[1] == "\"", number});
  }
  return found;
}

std::vector<std::string> violations_in(const std::string& path, std::string_view text) {
  std::vector<std::string> found;
  for (const auto& include : includes_of(text)) {
    auto why = objection(path, include);
    if (!why.empty()) found.push_back(path + ":" + std::to_string(include.line) + ": " + include.path + " " + why);
  }
  return found;
}

}  // namespace pliant::house
