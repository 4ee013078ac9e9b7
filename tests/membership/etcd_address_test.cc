#include "membership/etcd_address.h"

#include <gtest/gtest.h>

#include "membership/store.h"

namespace pliant::membership {
namespace {

TEST(EtcdAddress, IsTakenApart) {
  using Servers = std::vector<EtcdAddress::Server>;
  const std::pair<std::string, EtcdAddress> kGood[] = {
      {"etcd://10.0.0.1:2379", {{{"10.0.0.1", 2379}}, "/pliant/"}},
      {"etcd://10.0.0.1", {{{"10.0.0.1", 2379}}, "/pliant/"}},
      {"etcd://10.0.0.1/", {{{"10.0.0.1", 2379}}, "/pliant/"}},
      {"etcd://10.0.0.1:1,10.0.0.2:65535,10.0.0.3/team",
       {Servers{{"10.0.0.1", 1}, {"10.0.0.2", 65535}, {"10.0.0.3", 2379}}, "/team/"}},
      {"etcd://[fd00::1]:4711,[FD00:0:0::2]/a/b/", {Servers{{"fd00::1", 4711}, {"fd00::2", 2379}}, "/a/b/"}},
      {"etcd://store-1.example.org:80,store_2/x:y,z",
       {Servers{{"store-1.example.org", 80}, {"store_2", 2379}}, "/x:y,z/"}},
  };
  for (const auto& [url, address] : kGood) EXPECT_EQ(parse_etcd_address(url).or_throw(), address) << url;
}

TEST(EtcdAddress, NonsenseIsRefused) {
  for (std::string url : {"",
                          "etcd",
                          "etcd:",
                          "etcd://",
                          "etcd:///",
                          "etcd:///prefix",
                          "etcd://,",
                          "etcd://a,",
                          "etcd://,a",
                          "etcd://a,,b",
                          "http://10.0.0.1:2379",
                          "ETCD://a",
                          "10.0.0.1:2379",
                          "etcd://10.0.0.1:",
                          "etcd://10.0.0.1:0",
                          "etcd://10.0.0.1:65536",
                          "etcd://10.0.0.1:+1",
                          "etcd://10.0.0.1:2379x",
                          "etcd://10.0.0.1:23:79",
                          "etcd://:2379",
                          "etcd://fd00::1",
                          "etcd://[fd00::1",
                          "etcd://[]:2379",
                          "etcd://[10.0.0.1]:2379",
                          "etcd://[fd00::1]2379",
                          "etcd://[fd00::1]:",
                          "etcd://[fd00::1]x",
                          "etcd://a b",
                          "etcd://user@a",
                          "etcd://a/b c",
                          "etcd://a/b?c",
                          "etcd://a/b#c",
                          "etcd://a/b%20c",
                          "etcd://a/\n",
                          "etcd://a?b",
                          "etcd://a\xc3\xa4"}) {
    auto address = parse_etcd_address(url);
    ASSERT_FALSE(address.ok()) << url;
    EXPECT_EQ(address.error().code, Code::invalid) << url;
  }
}

TEST(EtcdAddress, WithTlsHasOptions) {
  auto plain = parse_etcd_address("etcds://a:1/team").or_throw();
  EXPECT_TRUE(plain.tls);
  EXPECT_EQ(plain.prefix, "/team/");
  EXPECT_EQ(plain.ca + plain.cert + plain.key + plain.user + plain.password_file, "");
  auto all = parse_etcd_address("etcds://a?ca=/c%20a.pem&cert=/c&key=/k&user=me%26you&password=/p").or_throw();
  EXPECT_EQ(all.prefix, "/pliant/");
  EXPECT_EQ(all.ca, "/c a.pem");
  EXPECT_EQ(all.cert, "/c");
  EXPECT_EQ(all.key, "/k");
  EXPECT_EQ(all.user, "me&you");
  EXPECT_EQ(all.password_file, "/p");
}

TEST(EtcdAddress, WhatIsPutTogetherIsTakenApart) {
  EtcdAddress address{{{"10.0.0.1", 1}, {"fd00::1", 2379}, {"store", 80}}, "/a/b/"};
  EXPECT_EQ(etcd_url(address), "etcd://10.0.0.1:1,[fd00::1]:2379,store:80/a/b/");
  EXPECT_EQ(parse_etcd_address(etcd_url(address)).or_throw(), address);
  address.tls = true;
  EXPECT_EQ(parse_etcd_address(etcd_url(address)).or_throw(), address);
  address.ca = "/with space/&=?%\xc3\xa4/ca.pem";
  address.cert = "/c";
  address.key = "/k";
  address.user = "a user";
  address.password_file = "/p";
  EXPECT_EQ(parse_etcd_address(etcd_url(address)).or_throw(), address);
}

TEST(EtcdAddress, NonsenseInOptionsIsRefused) {
  for (std::string options : {"ca", "ca=", "=x", "x=y", "ca=%", "ca=%2", "ca=%zz", "ca=%00", "ca=a&ca=b", "cert=/c",
                              "key=/k", "user=me", "password=/p", "ca=a?ca=b&x"})
    EXPECT_FALSE(parse_etcd_address("etcds://a/b?" + options).ok()) << options;
  EXPECT_FALSE(parse_etcd_address("etcd://a/b?ca=/x").ok()) << "without TLS there is nothing to check";
}

TEST(EtcdAddress, NamesAreResolved) {
  net::Loop loop;
  EXPECT_TRUE(open_store(loop, "etcd://127.0.0.1:1,[::1]:1/x").ok());
  EXPECT_EQ(open_store(loop, "etcd://127.0.0.1:x").error().code, Code::invalid);
  auto nobody = open_store(loop, "etcd://127.0.0.1," + std::string(300, 'x'));  // too long to ask anybody
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, Code::not_found);
}

}  // namespace
}  // namespace pliant::membership
