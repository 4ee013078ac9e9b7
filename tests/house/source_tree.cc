#include "house/source_tree.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace pliant::house {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const fs::path& root, const std::vector<std::string>& endings) {
  std::vector<std::string> files;
  for (const auto& folder : kRoots) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      auto path = entry.path().lexically_relative(root).string();
      if (std::ranges::any_of(endings, [&](const auto& ending) { return path.ends_with(ending); }))
        files.push_back(path);
    }
  }
  std::ranges::sort(files);
  return files;
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace pliant::house
