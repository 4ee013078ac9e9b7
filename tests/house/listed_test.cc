// Nothing outside the build: every source is named in a CMakeLists.txt above it, and every such file is reached.
// Rivals' programs are the exception: their script compiles them, because the build never needs MPI.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "house/source_tree.h"

namespace pliant::house {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& text) {
  static const std::regex kWord(R"re([^\s()";]+)re");
  std::vector<std::string> words;
  for (std::sregex_iterator at(text.begin(), text.end(), kWord), end; at != end; ++at) words.push_back(at->str());
  return words;
}

/// The words, with "${x}" written out for each item of every foreach(x ...) in the text.
std::vector<std::string> expanded_words_of(const std::string& text) {
  auto words = words_of(text);
  static const std::regex kLoop(R"re(foreach\s*\(\s*(\w+)([^)]*)\))re");
  for (std::sregex_iterator at(text.begin(), text.end(), kLoop), end; at != end; ++at) {
    auto variable = "${" + (*at)[1].str() + "}";
    auto items = words_of((*at)[2]);
    for (const auto& word : words_of(text))
      if (auto found = word.find(variable); found != std::string::npos)
        for (const auto& item : items) words.push_back(std::string(word).replace(found, variable.size(), item));
  }
  return words;
}

/// Every word of a CMakeLists.txt in `folder`, read as a path from there (or from the root, where it says so).
std::set<std::string> paths_named(const fs::path& folder, const std::string& text) {
  std::set<std::string> paths;
  for (auto name : expanded_words_of(std::regex_replace(text, std::regex("#[^\n]*"), ""))) {
    auto base = folder;
    for (std::string variable : {"${PROJECT_SOURCE_DIR}/", "${CMAKE_CURRENT_SOURCE_DIR}/"}) {
      if (auto found = name.find(variable); found != std::string::npos) {
        name = name.substr(found + variable.size());
        if (variable.starts_with("${PROJECT")) base = "";
      }
    }
    paths.insert((base / name).lexically_normal().string());
  }
  return paths;
}

std::set<std::string> all_paths_named() {
  const fs::path root = PLIANT_SOURCE_DIR;
  auto named = paths_named("", text_of(root / "CMakeLists.txt"));
  for (const auto& file : files_of(root, {"CMakeLists.txt", "bench/peers/peers.py"}))
    named.merge(paths_named(fs::path(file).parent_path(), text_of(root / file)));
  return named;
}

TEST(Listed, EverySourceIsInTheBuild) {
  auto sources = files_of(PLIANT_SOURCE_DIR, {".cc"});
  ASSERT_GT(sources.size(), 30U);
  auto named = all_paths_named();
  for (const auto& source : sources) EXPECT_TRUE(named.contains(source)) << source << " is in no CMakeLists.txt";
}

TEST(Listed, EveryFolderIsReached) {
  auto named = all_paths_named();
  for (const auto& file : files_of(PLIANT_SOURCE_DIR, {"CMakeLists.txt"})) {
    auto folder = fs::path(file).parent_path().string();
    EXPECT_TRUE(named.contains(folder)) << folder << " is not added by any CMakeLists.txt";
  }
}

TEST(Listed, SourcesHaveOneEnding) {
  for (const auto& file : files_of(PLIANT_SOURCE_DIR, {".cpp", ".cxx", ".c", ".hpp", ".C", ".cu"}))
    ADD_FAILURE() << file << ": sources end in .cc, headers in .h";
}

TEST(Listed, PathsAreReadAsCmakeReadsThem) {
  auto named = paths_named("tests/x",
                           "add(one.cc sub/two.cc # three.cc\n \"${PROJECT_SOURCE_DIR}/src/a.cc\" ../y)\n"
                           "-D IT=${CMAKE_CURRENT_SOURCE_DIR}/inner)\n"
                           "foreach(x a b)\n add(${x}_test.cc)\nendforeach()");
  for (auto path : {"tests/x/one.cc", "tests/x/sub/two.cc", "src/a.cc", "tests/y", "tests/x/inner", "tests/x/a_test.cc",
                    "tests/x/b_test.cc"})
    EXPECT_TRUE(named.contains(path)) << path;
  EXPECT_FALSE(named.contains("tests/x/three.cc"));
}

}  // namespace
}  // namespace pliant::house
