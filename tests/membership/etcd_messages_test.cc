#include "membership/etcd_messages.h"

#include <gtest/gtest.h>

namespace pliant::membership {
namespace {

using Question = EtcdQuestion;

TEST(EtcdMessages, QuestionsAreWrittenLikeThis) {
  EXPECT_EQ(etcd_range("foo"), R"({"key":"Zm9v"})");
  EXPECT_EQ(etcd_removal("foo"), R"({"key":"Zm9v","range_end":"Zm9w"})");
  EXPECT_EQ(etcd_removal("a\xff\xff"), R"({"key":"Yf//","range_end":"Yg=="})");
  EXPECT_EQ(
      etcd_txn("foo", 0, "bar"),
      R"({"compare":[{"create_revision":"0","key":"Zm9v","result":"EQUAL","target":"CREATE"}],)"
      R"("failure":[{"request_range":{"key":"Zm9v"}}],"success":[{"request_put":{"key":"Zm9v","value":"YmFy"}}]})");
  EXPECT_NE(etcd_txn("foo", 77, "").find(R"("mod_revision":"77","result":"EQUAL","target":"MOD")"), std::string::npos);
}

// As a server of version 3.4 wrote them.
constexpr const char* kNothing = R"({"header":{"cluster_id":"6","member_id":"7","revision":"1","raft_term":"2"}})";
constexpr const char* kFound =
    R"({"header":{"revision":"9"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"4","version":"3",)"
    R"("value":"YmFy"}],"count":"1"})";
constexpr const char* kFoundEmpty =
    R"({"header":{"revision":"9"},"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"4","version":"3"}]})";
constexpr const char* kWon =
    R"({"header":{"revision":"2"},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}}]})";
constexpr const char* kLost =
    R"({"header":{"revision":"5"},"responses":[{"response_range":{"header":{"revision":"5"},"kvs":[{"key":"Zm9v",)"
    R"("create_revision":"2","mod_revision":"3","version":"1","value":"YmFy"}],"count":"1"}}]})";
constexpr const char* kLostToNothing =
    R"({"header":{"revision":"5"},"responses":[{"response_range":{"header":{"revision":"5"}}}]})";

TEST(EtcdMessages, AnswersAreUnderstood) {
  auto nothing = understand_etcd(Question::range, {200, kNothing}).or_throw();
  EXPECT_EQ(nothing.found.revision, 0U);
  EXPECT_EQ(nothing.revision, 1U);
  auto found = understand_etcd(Question::range, {200, kFound}).or_throw();
  EXPECT_EQ(found.found.text, "bar");
  EXPECT_EQ(found.found.revision, 4U);
  auto empty = understand_etcd(Question::range, {200, kFoundEmpty}).or_throw();
  EXPECT_EQ(empty.found.text, "");
  EXPECT_EQ(empty.found.revision, 4U);
  auto won = understand_etcd(Question::txn, {200, kWon}).or_throw();
  EXPECT_TRUE(won.succeeded);
  EXPECT_EQ(won.revision, 2U);
  auto lost = understand_etcd(Question::txn, {200, kLost}).or_throw();
  EXPECT_FALSE(lost.succeeded);
  EXPECT_EQ(lost.found.text, "bar");
  EXPECT_EQ(lost.found.revision, 3U);
  EXPECT_EQ(understand_etcd(Question::txn, {200, kLostToNothing}).or_throw().found.revision, 0U);
  EXPECT_TRUE(understand_etcd(Question::removal, {200, R"({"header":{"revision":"5"},"deleted":"1"})"}).ok());
}

TEST(EtcdMessages, RefusalsKeepTheirWords) {
  struct Case {
    int status;
    std::string body;
    Code code;
    std::string words;
  };
  const Case kCases[] = {
      {400, R"({"error":"etcdserver: key is not provided","code":3})", Code::io, "etcdserver: key is not provided"},
      {503, R"({"error":"etcdserver: no leader","code":14})", Code::peer_lost, "etcdserver: no leader"},
      {504, R"({"error":"context deadline exceeded","code":4})", Code::peer_lost, "context deadline exceeded"},
      {429, R"({"error":"etcdserver: too\nmany\u0007 requests","code":8})", Code::io, "etcdserver: too many  requests"},
      {400, R"({"error":"\u0061)" + std::string(1000, 'x') + "\"}", Code::io, "a" + std::string(199, 'x')},
      {500, R"({"error":{},"code":"14"})", Code::io, "an error without words"},
      {502, "<html>Bad Gateway</html>", Code::peer_lost, "HTTP status 502"},
      {404, "Not Found\n", Code::protocol, "not what an etcd server answers: HTTP status 404: Not Found"},
      {301, "", Code::protocol, "not what an etcd server answers: HTTP status 301"},
  };
  for (const auto& one : kCases) {
    auto answer = understand_etcd(Question::range, {one.status, one.body});
    ASSERT_FALSE(answer.ok()) << one.body;
    EXPECT_EQ(answer.error().code, one.code) << one.body;
    EXPECT_EQ(answer.error().message, one.words);
  }
}

TEST(EtcdMessages, NonsenseIsRefused) {
  const std::string kHeader = R"({"header":{"revision":"9"})";
  const std::pair<Question, std::string> kCases[] = {
      {Question::range, ""},
      {Question::range, "hello"},
      {Question::range, "{}"},
      {Question::range, "[]"},
      {Question::range, "null"},
      {Question::range, R"({"header":{}})"},
      {Question::range, R"({"header":{"revision":9}})"},
      {Question::range, R"({"header":{"revision":"-9"}})"},
      {Question::range, R"({"header":{"revision":"9x"}})"},
      {Question::range, R"({"header":{"revision":"99999999999999999999"}})"},
      {Question::range, std::string(kNothing).substr(0, 60)},
      {Question::range, kHeader + R"(,"kvs":{}})"},
      {Question::range, kHeader + R"(,"kvs":[]})"},
      {Question::range, kHeader + R"(,"kvs":[1]})"},
      {Question::range, kHeader + R"(,"kvs":[{"value":"YmFy"}]})"},
      {Question::range, kHeader + R"(,"kvs":[{"mod_revision":"0"}]})"},
      {Question::range, kHeader + R"(,"kvs":[{"mod_revision":"4","value":7}]})"},
      {Question::range, kHeader + R"(,"kvs":[{"mod_revision":"4","value":"YmF"}]})"},
      {Question::range, kHeader + R"(,"kvs":[{"mod_revision":"4"},{"mod_revision":"5"}]})"},
      {Question::range, std::string(500'000, '[')},
      {Question::range, std::string(100'000, '[') + std::string(100'000, ']')},
      {Question::txn, "{}"},
      {Question::txn, kNothing},
      {Question::txn, kHeader + R"(,"succeeded":"true"})"},
      {Question::txn, kHeader + R"(,"responses":[]})"},
      {Question::txn, kHeader + R"(,"responses":[{}]})"},
      {Question::txn, kHeader + R"(,"responses":[{"response_put":{}}]})"},
      {Question::txn, kHeader + R"(,"responses":[{"response_range":{}}]})"},
      {Question::removal, "{}"},
      {Question::removal, "x"},
  };
  for (const auto& [question, body] : kCases) {
    auto answer = understand_etcd(question, {200, body});
    ASSERT_FALSE(answer.ok()) << body;
    EXPECT_EQ(answer.error().code, Code::protocol) << body;
  }
}

// ---- users ----

TEST(EtcdMessages, AUserGetsAToken) {
  EXPECT_EQ(etcd_login({"me", "a \"b\""}), R"({"name":"me","password":"a \"b\""})");
  EXPECT_EQ(understand_etcd_login({200, R"({"header":{"revision":"3"},"token":"abc.1"})"}).or_throw(), "abc.1");
  for (std::string body :
       {"", "{}", R"({"token":""})", R"({"token":7})", R"({"token":"a b"})", R"({"token":"a\r\nb"})"})
    EXPECT_EQ(understand_etcd_login({200, body}).error().code, Code::protocol) << body;
  auto wrong = understand_etcd_login({400, R"({"error":"invalid user ID or password","code":3})"});
  EXPECT_EQ(wrong.error().code, Code::io);
  EXPECT_EQ(understand_etcd_login({503, R"({"error":"no leader","code":14})"}).error().code, Code::peer_lost);
}

TEST(EtcdMessages, ATokenThatDoesNotCountAnyMoreIsSaid) {
  for (const auto* body : {R"({"error":"etcdserver: invalid auth token","code":16})",
                           R"({"error":"etcdserver: revision of auth store is old","code":3})"})
    EXPECT_EQ(understand_etcd(EtcdQuestion::range, {400, body}).error().code, Code::refused) << body;
  EXPECT_EQ(
      understand_etcd(EtcdQuestion::range, {403, R"({"error":"etcdserver: permission denied","code":7})"}).error().code,
      Code::io);
}

}  // namespace
}  // namespace pliant::membership
