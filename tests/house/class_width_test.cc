// No class of what carries a job is so wide that nobody can keep its state in mind.
#include "house/class_width.h"

#include <gtest/gtest.h>

#include <map>

#include "house/source_tree.h"

namespace pliant::house {
namespace {

constexpr int kMost = 25;

/// Wider than that until they are taken apart; they may not grow.
const std::map<std::string, int> kStillWide = {

    {"Buckets", 33},
};

TEST(ClassWidth, CountsMembersAndThoseOfNestedClasses) {
  auto widths = class_widths(R"cc(
    // class Comment { int a; };
    namespace x {
    enum class Kind { one, two };
    struct Plain {
      int a = 0, b = 1;
      std::map<int, std::function<void(int, int)>> c;
      double d{0};
    };
    class Wide final : public Base<int, 2> {
     public:
      explicit Wide(int a) : first_(a) {}
      int first() const { return first_; }
      using Type = int;
      static constexpr int kSize = 3;
      void function(std::string text = "a;b");
      struct Inner {
        int one;
        std::string two = "{;";
      };

     private:
      friend class Other;
      const int first_;
      std::array<char, 3> text_ = {'a', 'b', 'c'};
      std::vector<Inner> inners_;
      alignas(64) std::atomic<int> word_{0};
      char row[2][8];
      std::function<void()> call_ = [] {};
    };
    }  // namespace x
  )cc");
  ASSERT_EQ(widths.size(), 3U);
  EXPECT_EQ(widths[0].name, "Plain");
  EXPECT_EQ(widths[0].members, 4);
  EXPECT_EQ(widths[1].name, "Inner");
  EXPECT_EQ(widths[1].members, 2);
  EXPECT_EQ(widths[2].name, "Wide");
  EXPECT_EQ(widths[2].members, 8);
}

TEST(ClassWidth, NoClassIsTooWide) {
  int classes = 0;
  for (const auto& file : files_of(PLIANT_SOURCE_DIR, {".h", ".cc"})) {
    if (!file.starts_with("src/") && !file.starts_with("apps/")) continue;
    for (const auto& width : class_widths(text_of(std::filesystem::path(PLIANT_SOURCE_DIR) / file))) {
      ++classes;
      auto known = kStillWide.find(width.name);
      EXPECT_LE(width.members, known == kStillWide.end() ? kMost : known->second) << width.name << " in " << file;
    }
  }
  EXPECT_GT(classes, 300);
}

}  // namespace
}  // namespace pliant::house
