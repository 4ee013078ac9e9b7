// Signals are sent in one place, which looks first whom they will reach.
#include <gtest/gtest.h>

#include <regex>

#include "house/source_tree.h"

namespace pliant::house {
namespace {

TEST(Signals, AreSentInOnePlace) {
  const std::filesystem::path root = PLIANT_SOURCE_DIR;
  static const std::regex kSends(R"re((^|[^\w.>])(::)?(kill|killpg|tgkill|sigqueue)\s*\(|SYS_pidfd_send_signal)re");
  int found = 0;
  for (const auto& file : files_of(root, {".cc", ".h"})) {
    if (!file.starts_with("src/") && !file.starts_with("apps/")) continue;
    bool sends = std::regex_search(text_of(root / file), kSends);
    found += sends;
    EXPECT_TRUE(!sends || file == "apps/pliant/process.cc") << file;
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace pliant::house
