// The seam between main() and the subcommands. Each lives in its own file and registers itself:
//
//   void add_NAME(CLI::App& app, Action& action)
//
// adds the subcommand NAME with its flags and help; when the user chose it, its callback sets `action`. main() runs
// the action after all flags are parsed and exits with what it returns. A Failure thrown by the action becomes one
// line on stderr and exit status 1.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace pliant::cli {

using Action = std::function<int()>;

inline constexpr int kUsageError = 2;

/// "0.1.0".
std::string_view version();
/// Help in one style for `app` and all subcommands added later: short placeholders, environment twins in brackets.
void style_help(CLI::App& app);
/// A parse error as one line without its newline: "pliant run: unknown argument --bogus (pliant run --help ...)".
std::string explain(const CLI::App& app, const CLI::Error& error);
/// One line for a flag that takes a value and is followed by another flag, which the parser would take for it
/// ("--x=--y" says that it is meant); empty if there is none.
std::string missing_value(const CLI::App& app, const std::vector<std::string>& words);

/// A flag's check: whether `parse` has a Result for its text, and else why not.
template <class Parse>
auto parses(Parse parse) {
  return [parse](const std::string& text) {
    auto parsed = parse(text);
    return parsed.ok() ? std::string() : parsed.error().message;
  };
}

}  // namespace pliant::cli
