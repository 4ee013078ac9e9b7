#include "session/safetensors.h"

#include <gtest/gtest.h>

namespace pliant::session {
namespace {

std::string refusal(const std::string& header, std::uint64_t data_size) {
  auto places = decode_header(header, data_size);
  if (places) return "";
  EXPECT_EQ(places.error().code, Code::protocol);
  EXPECT_EQ(places.error().message.find('\n'), std::string::npos);
  return places.error().message;
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string only(const std::string& type, const std::string& shape, const std::string& offsets) {
  return "{" + tensor("w", type, shape, offsets) + "}";
}

TEST(Safetensors, HeadersComeBack) {
  std::vector<TensorPlace> places{{"a", Dtype::f64, {2}, 0, 16},
                                  {"b \"quoted\"\n", Dtype::f32, {1, 3}, 16, 28},
                                  {"empty", Dtype::bf16, {0, 1000}, 28, 28},
                                  {"scalar", Dtype::i8, {}, 28, 29}};
  auto file = encode_header(places, {{"key", "value \"é\""}});
  EXPECT_EQ(file.size() % 8, 0U);
  auto length = decode_length(file, file.size() + 29).or_throw();
  EXPECT_EQ(length, file.size() - kLengthBytes);
  EXPECT_EQ(decode_header(file.substr(kLengthBytes), 29).or_throw(), places);
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  auto places = decode_header("{" + tensor("late", "BOOL", "[2]", "[4,6]") + "," +
                                  tensor("early", "F16", "[2,1]", "[0,4]") + R"(,"__metadata__":{"a":"b"}}   )",
                              6)
                    .or_throw();
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0].name, "early");
  EXPECT_EQ(places[1].dtype, Dtype::u8);
  EXPECT_TRUE(decode_header("{}", 0).or_throw().empty());
}

TEST(Safetensors, AbsurdLengthsAreRefused) {
  auto length_of = [](std::uint64_t length, std::uint64_t file_size) {
    return decode_length(std::string_view(reinterpret_cast<const char*>(&length), 8), file_size).ok();
  };
  EXPECT_TRUE(length_of(92, 100));
  EXPECT_FALSE(length_of(93, 100));
  EXPECT_FALSE(length_of(~std::uint64_t{0}, 100));
  EXPECT_FALSE(length_of(~std::uint64_t{0} - 7, 100));
  EXPECT_FALSE(length_of(kLongestHeader + 1, kLongestHeader + 100));
  EXPECT_FALSE(decode_length("1234567", 7).ok());
  EXPECT_FALSE(decode_length("", 0).ok());
}

TEST(Safetensors, OffsetsMustCoverTheDataExactly) {
  EXPECT_EQ(refusal(only("F32", "[2]", "[0,8]"), 8), "");
  EXPECT_EQ(refusal(only("F32", "[2]", "[0,8]"), 7), "truncated: tensors of 8 bytes announced, 7 there");
  EXPECT_EQ(refusal(only("F32", "[2]", "[0,8]"), 9), "too long: tensors of 8 bytes announced, 9 there");
  EXPECT_EQ(refusal(only("F32", "[2]", "[8,0]"), 8), "'w' ends at 0, before its begin 8");
  EXPECT_EQ(refusal(only("F32", "[2]", "[4,12]"), 12), "'w' begins at 4, leaving a hole from byte 0");
  EXPECT_EQ(refusal(only("F32", "[3]", "[0,8]"), 8), "'w' has 12 bytes by its shape, 8 by its offsets");
  EXPECT_EQ(refusal("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[4]", "[2,6]") + "}", 6),
            "'b' begins at 2, overlapping what is before byte 4");
  EXPECT_EQ(refusal("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("a", "U8", "[4]", "[4,8]") + "}", 8),
            "'a' is there twice");
}

TEST(Safetensors, ShapesThatOverflowAreRefused) {
  EXPECT_EQ(refusal(only("F32", "[4294967296,4294967296]", "[0,0]"), 0), "the shape of 'w' has over 2^64 bytes");
  EXPECT_EQ(refusal(only("F64", "[2305843009213693952]", "[0,0]"), 0), "the shape of 'w' has over 2^64 bytes");
  EXPECT_EQ(refusal(only("F32", "[4294967296,4294967296,0]", "[0,0]"), 0), "");
}

TEST(Safetensors, WrongTypesAreRefused) {
  EXPECT_EQ(refusal(only("F8_E4M3", "[2]", "[0,2]"), 2), "header: 'w': type 'F8_E4M3' is none that is held here");
  EXPECT_EQ(refusal(only("U8", "[2]", "[0,2,4]"), 2), "header: 'w': 3 data_offsets instead of 2");
  EXPECT_EQ(refusal(only("U8", "[-2]", "[0,2]"), 2), "header: 'w': a negative number where it does not belong");
  EXPECT_EQ(refusal(only("U8", "[2.5]", "[0,2]"), 2),
            "header: 'w': a number that is no integer where it does not belong");
  EXPECT_EQ(refusal(only("U8", "[99999999999999999999]", "[0,2]"), 2),
            "header: 'w': a number that is no integer where it does not belong");
  EXPECT_EQ(refusal(only("U8", "[[2]]", "[0,2]"), 2), "header: 'w': a list where it does not belong");
  EXPECT_EQ(refusal(only("U8", "{}", "[0,2]"), 2), "header: 'w': an object where it does not belong");
  EXPECT_EQ(refusal(only("U8", "null", "[0,2]"), 2), "header: 'w': null where it does not belong");
  EXPECT_EQ(refusal(R"({"w":{"dtype":"U8"}})", 0), "header: 'w': dtype, shape or data_offsets is missing");
  EXPECT_EQ(refusal(R"({"w":{"dtype":"U8","dtype":"U8"}})", 0), "header: 'w': dtype twice");
  EXPECT_EQ(refusal(R"({"w":{"colour":"U8"}})", 0), "header: 'w': unknown field 'colour'");
  EXPECT_EQ(refusal(R"({"w":7})", 0), "header: 'w': a number where it does not belong");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), "header: a number where it does not belong");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "header: __metadata__ twice");
}

TEST(Safetensors, NoiseIsRefused) {
  EXPECT_EQ(refusal("", 0), "not safetensors: the header does not begin with '{'");
  EXPECT_EQ(refusal(" {}", 0), "not safetensors: the header does not begin with '{'");
  EXPECT_EQ(refusal("{", 0), "header is not JSON at byte 2");
  EXPECT_EQ(refusal("{} {}", 0), "header is not JSON at byte 4");
  EXPECT_EQ(refusal("{\"\xff\":1}", 0), "header is not JSON at byte 3");
  EXPECT_FALSE(refusal("{\"w\":" + std::string(1000000, '['), 0).empty());
}

TEST(Safetensors, StrangersNamesStayOnOneLine) {
  EXPECT_EQ(in_quotes("a\nb"), "'a?b'");
  EXPECT_EQ(in_quotes(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(in_quotes(std::string(59, 'x') + "éy"), "'" + std::string(59, 'x') + "…'");
}

}  // namespace
}  // namespace pliant::session
