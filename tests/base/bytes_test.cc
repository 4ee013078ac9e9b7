#include "base/bytes.h"

#include <gtest/gtest.h>

namespace pliant {
namespace {

TEST(Bytes, SizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("4096").or_throw(), 4096U);
  EXPECT_EQ(parse_bytes("1Ki").or_throw(), 1024U);
  EXPECT_EQ(parse_bytes("100Mi").or_throw(), 100U << 20);
  EXPECT_EQ(parse_bytes("3GiB").or_throw(), std::uint64_t{3} << 30);
  for (const char* bad : {"", "Ki", "-1", "1.5Mi", "1Xi", "1 Mi", "99999999999999999999", "18446744073709551615Gi"})
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
}

TEST(Bytes, AndAsWeWriteThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 40), "5 TiB");
}

TEST(Bytes, WhatIsWrittenComesBack) {
  ByteWriter out;
  out.put(std::uint32_t{7});
  out.put_text("hello");
  out.put(2.5);
  auto bytes = std::move(out).take();
  ByteReader in(bytes);
  EXPECT_EQ(in.get<std::uint32_t>(), 7U);
  EXPECT_EQ(in.get_text(10), "hello");
  EXPECT_EQ(in.get<double>(), 2.5);
  EXPECT_TRUE(in.finished());
}

TEST(Bytes, ALengthThatLiesEndsTheReading) {
  ByteWriter out;
  out.put(std::uint32_t{0xffffffff});
  out.put(std::uint32_t{1});
  auto bytes = std::move(out).take();
  ByteReader in(bytes);
  EXPECT_EQ(in.get_text(100), "");
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.get<std::uint32_t>(), 0U);  // nothing more comes, not even what is there
  ByteReader longer(bytes);
  EXPECT_EQ(longer.get_text(std::size_t{1} << 40), "");
  EXPECT_FALSE(longer.ok());
}

}  // namespace
}  // namespace pliant
