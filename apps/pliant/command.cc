#include "apps/pliant/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>

namespace pliant::cli {
namespace {

constexpr std::size_t kNames = 26;  // columns for the flags, the rest for what they mean
constexpr std::size_t kMeanings = 74;

std::string wrap(const std::string& text) {
  std::string lines;
  std::size_t used = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; used += word.size()) {
    bool next_line = used + 1 + word.size() > kMeanings;
    if (used) lines += next_line ? '\n' : ' ';
    used = next_line ? 0 : used + 1;
    lines += word;
  }
  return lines;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNames); }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    auto twin = option->get_envname();
    return wrap(option->get_description() + (twin.empty() ? "" : " [$" + twin + "]"));
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    auto text = option->get_option_text();
    return text.empty() ? CLI::Formatter::make_option_usage(option) : text;
  }
};

/// The subcommand that the user chose, or the app itself.
const CLI::App& chosen(const CLI::App& app) {
  auto parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.front();
}

const CLI::App* inner_command(const CLI::App& command, const std::string& name) {
  auto all = command.get_subcommands([&](const CLI::App* each) { return each->get_name() == name; });
  return all.empty() ? nullptr : all.front();
}

}  // namespace

std::string_view version() { return PLIANT_VERSION; }

void style_help(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

std::string missing_value(const CLI::App& app, const std::vector<std::string>& words) {
  const auto* command = &app;
  auto name = app.get_name();
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != "--"; ++i) {
    if (const auto* inner = inner_command(*command, words[i])) {
      command = inner;
      name += " " + words[i];
      continue;
    }
    const auto* option = words[i].starts_with("-") ? command->get_option_no_throw(words[i]) : nullptr;
    if (!option || option->get_items_expected_min() == 0 || !words[i + 1].starts_with("--")) continue;
    auto value = option->get_option_text().empty() ? option->get_type_name() : option->get_option_text();
    return fmt::format("{0}: {1} needs a value: '{0} {1} {2}'", name, words[i], value);
  }
  return {};
}

std::string explain(const CLI::App& app, const CLI::Error& error) {
  const auto& command = chosen(app);
  auto name = &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
  std::string what = error.what();
  auto rest = command.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !rest.empty()) {
    auto flag = std::find_if(rest.begin(), rest.end(), [](const auto& word) { return word.starts_with("-"); });
    what = &command == &app && flag == rest.end() ? "unknown command " + rest.front()
                                                  : "unknown argument " + (flag == rest.end() ? rest.front() : *flag);
    bool names_job = flag != rest.end() && (flag->starts_with("--name") || flag->starts_with("--job"));
    if (names_job && command.get_option_no_throw("JOB"))
      what += fmt::format("; a job's name stands alone: '{} JOB'", name);
  }
  return fmt::format("{}: {} ('{} --help' shows what there is)", name, printable(what), name);
}

}  // namespace pliant::cli
