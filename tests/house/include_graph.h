// Who may include whom. The order of the folders is that of docs/architecture.md and src/CMakeLists.txt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pliant::house {

struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};
std::vector<Include> includes_of(std::string_view text);

/// What a file at `path` (relative to the root) with this text breaks; one line each, empty if all is well.
///   src/<folder>/  includes its own folder, those before it and <pliant/...>
///   include/       stands alone: the standard library, the system and <pliant/...>; torch.h also LibTorch
///   LibTorch       only in src/torch, include/pliant/torch.h, examples, bench and tests/torch
std::vector<std::string> violations_in(const std::string& path, std::string_view text);

}  // namespace pliant::house
