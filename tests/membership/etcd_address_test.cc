#include <gtest/gtest.h>

#include "membership/etcd.h"

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
