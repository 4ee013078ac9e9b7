#include "policy/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pliant/types.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace pliant::policy {
namespace {

double to_number(const std::string& name, const std::string& text) {
  double value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw Failure(Code::invalid, fmt::format("{}: '{}' is not a number", name, text));
  return value;
}

std::uint64_t to_count(const std::string& name, const std::string& text) {
  std::uint64_t value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value == 0)
    throw Failure(Code::invalid, fmt::format("{}: '{}' is not a number from 1 on", name, text));
  return value;
}

}  // namespace

Options::Options(std::string_view text) {
  while (!text.empty()) {
    auto comma = std::min(text.find(','), text.size());
    auto word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word.empty()) continue;
    auto equals = word.find('=');
    if (equals == std::string_view::npos)
      words_.emplace_back(word);
    else
      values_.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
}

double Options::number(const std::string& name, double otherwise) {
  auto all = numbers(name);
  if (all.size() > 1) throw Failure(Code::invalid, name + " is given twice");
  return all.empty() ? otherwise : all[0];
}

std::uint64_t Options::count(const std::string& name, std::uint64_t otherwise) {
  auto at = values_.extract(name);
  if (values_.contains(name)) throw Failure(Code::invalid, name + " is given twice");
  return at.empty() ? otherwise : to_count(name, at.mapped());
}

std::string Options::choice(const std::string& name, const std::vector<std::string>& choices) {
  auto at = values_.extract(name);
  if (at.empty()) return choices[0];
  if (std::ranges::find(choices, at.mapped()) == choices.end())
    throw Failure(Code::invalid, fmt::format("{}: '{}' is none of {}", name, at.mapped(), fmt::join(choices, ", ")));
  return at.mapped();
}

std::string Options::text(const std::string& name) {
  auto at = values_.extract(name);
  return at.empty() ? "" : at.mapped();
}

std::vector<double> Options::numbers(const std::string& name) {
  std::vector<double> all;
  for (auto at = values_.extract(name); !at.empty(); at = values_.extract(name))
    all.push_back(to_number(name, at.mapped()));
  return all;
}

std::vector<std::string> Options::words() { return std::exchange(words_, {}); }

void Options::refuse_rest() const {
  if (!values_.empty()) throw Failure(Code::invalid, fmt::format("there is no option '{}'", values_.begin()->first));
  if (!words_.empty()) throw Failure(Code::invalid, fmt::format("'{}' says nothing here", words_.front()));
}

Stage parse_stage(const std::string& text) {
  auto cross = text.find('x');
  if (cross == std::string::npos) throw Failure(Code::invalid, fmt::format("'{}' is not like 2x100", text));
  return {to_count("schedule", text.substr(0, cross)), to_count("schedule", text.substr(cross + 1))};
}

}  // namespace pliant::policy
