// The repository's own files, as the house rules see them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pliant::house {

/// The folders that hold code, relative to the root.
inline const std::vector<std::string> kRoots = {"src", "include", "apps", "examples", "bench", "tests"};

/// Files below kRoots of `root` that end in one of `endings`, relative to `root`, sorted.
std::vector<std::string> files_of(const std::filesystem::path& root, const std::vector<std::string>& endings);
std::string text_of(const std::filesystem::path& file);

}  // namespace pliant::house
