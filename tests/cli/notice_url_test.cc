#include <gtest/gtest.h>

#include "apps/pliant/notice_watch.h"

namespace pliant::cli {
namespace {

TEST(NoticeUrl, IsTakenApart) {
  const std::pair<std::string, NoticeUrl> kGood[] = {
      {"http://169.254.169.254/latest/meta-data/spot/instance-action",
       {"169.254.169.254", 80, "/latest/meta-data/spot/instance-action"}},
      {"http://metadata.google.internal/computeMetadata/v1/instance/preempted",
       {"metadata.google.internal", 80, "/computeMetadata/v1/instance/preempted"}},
      {"http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
       {"169.254.169.254", 80, "/metadata/scheduledevents?api-version=2020-07-01"}},
      {"http://own-server_1:8080", {"own-server_1", 8080, "/"}},
      {"http://own:65535/", {"own", 65535, "/"}},
      {"http://own?x=1", {"own", 80, "/?x=1"}},
      {"http://own:1?x=http://other:2/", {"own", 1, "/?x=http://other:2/"}},
      {"http://[fd00:ec2::254]/latest", {"fd00:ec2::254", 80, "/latest"}},
      {"http://[FD00:0::1]:81/%20", {"fd00::1", 81, "/%20"}},
  };
  for (const auto& [text, url] : kGood) {
    EXPECT_EQ(parse_notice_url(text).or_throw(), url) << text;
    EXPECT_EQ(parse_notice_url(url.text()).or_throw(), url) << url.text();
  }
  EXPECT_EQ((NoticeUrl{"fd00::1", 81, "/x"}.text()), "http://[fd00::1]:81/x");
  EXPECT_EQ((NoticeUrl{"own", 80, "/x"}.text()), "http://own/x");
}

TEST(NoticeUrl, NonsenseIsRefusedWithItsReason) {
  const std::pair<std::string, std::string> kBad[] = {
      {"", "begin with http://"},
      {"169.254.169.254/x", "begin with http://"},
      {"HTTP://a", "begin with http://"},
      {"ftp://a/", "begin with http://"},
      {"https://169.254.169.254/", "https is not spoken"},
      {"http://", "no host"},
      {"http:///x", "no host"},
      {"http://:80/x", "no host"},
      {"http://?x", "no host"},
      {"http://a:/x", "port"},
      {"http://a:0/x", "port"},
      {"http://a:65536/", "port"},
      {"http://a:80x/", "port"},
      {"http://a:-1/", "port"},
      {"http://a:1:2/", "port"},
      {"http://[fd00::1]80/", "port"},
      {"http://user:word@a/", "port"},
      {"http://user@a/", "neither"},
      {"http://fd00::1/", "port"},
      {"http://[fd00::1/x", "neither"},
      {"http://[/x", "neither"},
      {"http://[]/x", "neither"},
      {"http://[10.0.0.1]/x", "neither"},
      {"http://a b/", "neither"},
      {"http://a\xc3\xa4/", "neither"},
      {"http://a/b c", "path"},
      {"http://a/b#c", "path"},
      {"http://a#c", "path"},
      {"http://a/\r\nX: y", "path"},
      {"http://a/\xc3\xa4", "path"},
  };
  for (const auto& [text, reason] : kBad) {
    auto url = parse_notice_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.error().code, Code::invalid) << text;
    EXPECT_TRUE(url.error().message.find(reason) != std::string::npos) << url.error().message;
  }
}

}  // namespace
}  // namespace pliant::cli
