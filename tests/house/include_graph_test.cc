#include "house/include_graph.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "house/source_tree.h"

namespace pliant::house {
namespace {

TEST(IncludeGraph, TheRepositoryKeepsTheOrder) {
  auto files = files_of(PLIANT_SOURCE_DIR, {".h", ".cc"});
  ASSERT_GT(files.size(), 50U);
  for (const auto& file : files)
    for (const auto& violation : violations_in(file, text_of(std::filesystem::path(PLIANT_SOURCE_DIR) / file)))
      ADD_FAILURE() << violation;
}

TEST(IncludeGraph, FindsIncludesHoweverWritten) {
  auto found = includes_of("#include <a>\n  #  include\t\"b/c.h\"  // why\n// #include <d>\n#include<e.h>\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].path, "a");
  EXPECT_FALSE(found[0].quoted);
  EXPECT_EQ(found[1].path, "b/c.h");
  EXPECT_TRUE(found[1].quoted);
  EXPECT_EQ(found[1].line, 2);
  EXPECT_EQ(found[2].path, "e.h");
}

struct Case {
  const char* file;
  const char* include;
  bool allowed;
};

/// Names the test in listings.
void PrintTo(const Case& planted, std::ostream* out) {
  std::string include(planted.include);
  std::erase_if(include, [](char c) { return c == '"' || c == '<' || c == '>'; });
  *out << planted.file << " includes " << include;
}

class Planted : public testing::TestWithParam<Case> {};

TEST_P(Planted, IsJudged) {
  auto [file, include, allowed] = GetParam();
  auto found = violations_in(file, std::string("#pragma once\n#include ") + include + "\n");
  EXPECT_EQ(found.empty(), allowed) << file << " includes " << include;
  for (const auto& violation : found) EXPECT_TRUE(violation.starts_with(std::string(file) + ":2: ")) << violation;
}

INSTANTIATE_TEST_SUITE_P(
    IncludeGraph, Planted,
    testing::Values(
        // The order of folders.
        Case{"src/net/a.h", "\"net/b.h\"", true}, Case{"src/net/a.cc", "\"base/result.h\"", true},
        Case{"src/net/a.h", "\"collective/b.h\"", false}, Case{"src/base/a.cc", "\"wire/messages.h\"", false},
        Case{"src/session/a.cc", "\"plan/b.h\"", false}, Case{"src/torch/a.cc", "\"session/core.h\"", true},
        Case{"src/record/a.cc", "\"session/b.h\"", false}, Case{"src/session/a.cc", "\"record/b.h\"", true},
        Case{"src/session/a.cc", "\"torch/b.h\"", false}, Case{"src/torch/a.cc", "\"torch/b.h\"", true},
        Case{"src/base/a.cc", "<pliant/types.h>", true}, Case{"src/base/a.cc", "<fmt/core.h>", true},
        Case{"src/base/a.cc", "\"result.h\"", false}, Case{"src/base/a.cc", "\"../wire/messages.h\"", false},
        Case{"src/base/a.cc", "<wire/messages.h>", false}, Case{"src/base/a.cc", "\"apps/pliant/run.h\"", false},
        Case{"src/novel/a.cc", "<vector>", false}, Case{"src/a.cc", "<vector>", false},
        Case{"apps/pliant/a.cc", "\"session/core.h\"", true}, Case{"tests/net/a.cc", "\"session/core.h\"", true},
        // LibTorch.
        Case{"src/torch/a.cc", "<torch/torch.h>", true}, Case{"src/torch/a.cc", "<pliant/torch.h>", true},
        Case{"src/session/a.cc", "<torch/torch.h>", false}, Case{"src/session/a.cc", "<ATen/ATen.h>", false},
        Case{"src/session/a.cc", "<c10/core/Device.h>", false}, Case{"src/session/a.h", "<pliant/torch.h>", false},
        Case{"apps/pliant/a.cc", "<torch/torch.h>", false}, Case{"apps/pliant/a.cc", "<pliant/torch.h>", false},
        Case{"examples/a/a.cc", "<torch/torch.h>", true}, Case{"bench/a.cc", "<torch/torch.h>", true},
        Case{"tests/torch/a.cc", "<torch/torch.h>", true}, Case{"tests/session/a.cc", "<torch/torch.h>", false},
        // Public headers.
        Case{"include/pliant/pliant.h", "<vector>", true}, Case{"include/pliant/pliant.h", "<pliant/types.h>", true},
        Case{"include/pliant/pliant.h", "\"base/result.h\"", false},
        Case{"include/pliant/pliant.h", "<base/result.h>", false},
        Case{"include/pliant/pliant.h", "\"types.h\"", false}, Case{"include/pliant/pliant.h", "<fmt/core.h>", false},
        Case{"include/pliant/pliant.h", "<nlohmann/json.hpp>", false},
        Case{"include/pliant/pliant.h", "<asio.hpp>", false},
        Case{"include/pliant/pliant.h", "<boost/asio.hpp>", false},
        Case{"include/pliant/pliant.h", "<torch/torch.h>", false},
        Case{"include/pliant/pliant.h", "<pliant/torch.h>", false},
        Case{"include/pliant/torch.h", "<torch/torch.h>", true},
        Case{"include/pliant/torch.h", "<fmt/core.h>", false}));

}  // namespace
}  // namespace pliant::house
