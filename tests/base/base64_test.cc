#include "base/base64.h"

#include <gtest/gtest.h>

#include <random>

namespace pliant {
namespace {

TEST(Base64, TheStandardsOwnExamples) {
  const std::pair<std::string, std::string> kExamples[] = {{"", ""},
                                                           {"f", "Zg=="},
                                                           {"fo", "Zm8="},
                                                           {"foo", "Zm9v"},
                                                           {"foob", "Zm9vYg=="},
                                                           {"fooba", "Zm9vYmE="},
                                                           {"foobar", "Zm9vYmFy"},
                                                           {std::string("\0\xff\xfe", 3), "AP/+"}};
  for (const auto& [bytes, text] : kExamples) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text).or_throw(), bytes);
  }
}

TEST(Base64, EveryByteAtEveryPlaceComesBack) {
  std::mt19937 random(7);
  for (std::size_t size = 0; size < 70; ++size) {
    std::string bytes(size, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(from_base64(to_base64(bytes)).or_throw(), bytes);
  }
  std::string all(256, '\0');
  for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(from_base64(to_base64(all)).or_throw(), all);
}

TEST(Base64, NonsenseIsRefused) {
  for (std::string text : {"Z", "Zg", "Zg=", "Zm9", "=", "==", "====", "Z===", "Zg==Zg==", "Zg=v", "Zm9v\n", "Zm 9",
                           "Zm-_", "Zm9v====", "Zh==", "Zm9=", "Zm9\xc3"}) {
    auto bytes = from_base64(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.error().code, Code::protocol);
  }
  EXPECT_FALSE(from_base64(std::string("Zm9\0", 4)).ok());
}

}  // namespace
}  // namespace pliant
