#include "net/http_answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace pliant::net {
namespace {

/// What comes of a whole connection, fed in pieces of this size.
Result<HttpAnswer> parse(std::string_view text, std::size_t piece, HttpLimits limits) {
  HttpAnswerParser parser(limits);
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    PLIANT_TRY(parser.feed(text.substr(0, piece)));
  PLIANT_TRY(parser.end());
  return std::move(parser).take();
}

Result<HttpAnswer> parse(std::string_view text, HttpLimits limits = {}) {
  auto whole = parse(text, text.size() + 1, limits);
  for (std::size_t piece : {1, 2, 7}) {
    auto again = parse(text, piece, limits);
    EXPECT_EQ(again.ok(), whole.ok()) << text;
    if (again.ok() && whole.ok())
      EXPECT_EQ(again.value(), whole.value()) << text;
    else
      EXPECT_EQ(again.error().message, whole.error().message) << text;
  }
  return whole;
}

TEST(HttpAnswer, OfAKnownLength) {
  auto answer = parse("HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  5 \r\n\r\nhello").or_throw();
  EXPECT_EQ(answer, (HttpAnswer{200, "hello"}));
  EXPECT_EQ(parse("HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n").or_throw(), (HttpAnswer{404, ""}));
  EXPECT_EQ(parse("HTTP/1.1 204\r\n\r\n").or_throw(), (HttpAnswer{204, ""}));
  EXPECT_EQ(parse("HTTP/1.1 304 \r\nContent-Length: 7\r\n\r\n").or_throw(), (HttpAnswer{304, ""}));
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi").or_throw().body, "hi");
}

TEST(HttpAnswer, IsDoneAsSoonAsAllIsThere) {
  HttpAnswerParser parser;
  ASSERT_TRUE(parser.feed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh").ok());
  EXPECT_FALSE(parser.done());
  ASSERT_TRUE(parser.feed("i and more").ok());
  ASSERT_TRUE(parser.done());
  ASSERT_TRUE(parser.feed("even more").ok());
  ASSERT_TRUE(parser.end().ok());
  EXPECT_EQ(std::move(parser).take(), (HttpAnswer{200, "hi"}));
}

TEST(HttpAnswer, InChunks) {
  auto answer = parse(
      "HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n"
      "5\r\nhello\r\n0A ; a=b\r\n, \r\nworld!\r\n000\r\nX: y\r\n\r\nignored");
  EXPECT_EQ(std::move(answer).or_throw(), (HttpAnswer{400, "hello, \r\nworld!"}));
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").or_throw().body, "");
}

TEST(HttpAnswer, UntilTheEnd) {
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\n\r\nwhatever\r\n").or_throw(), (HttpAnswer{200, "whatever\r\n"}));
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\n\r\n").or_throw(), (HttpAnswer{200, ""}));
}

TEST(HttpAnswer, BehindInterimOnes) {
  EXPECT_EQ(parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\nContent-Length: 9\r\n\r\n"
                  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                .or_throw(),
            (HttpAnswer{200, "hi"}));
}

TEST(HttpAnswer, CutShortIsALoss) {
  for (std::string text :
       {"", "HTT", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"}) {
    auto answer = parse(text);
    ASSERT_FALSE(answer.ok()) << text;
    EXPECT_EQ(answer.error().code, Code::peer_lost) << text;
  }
}

TEST(HttpAnswer, NonsenseIsRefused) {
  const std::string kOk = "HTTP/1.1 200 OK\r\n";
  const std::string kChunked = kOk + "Transfer-Encoding: chunked\r\n";
  for (const std::string& text : {std::string("220 mail.example.org ESMTP\r\n"),
                                  std::string("\r\n"),
                                  std::string("HTTP/2 200\r\n"),
                                  std::string("HTTP/1.1 200 OK\n"),
                                  std::string("HTTP/1.1  200 OK\r\n"),
                                  std::string("HTTP/1.1 2000\r\n"),
                                  std::string("HTTP/1.1 099 x\r\n"),
                                  std::string("HTTP/1.1 600 x\r\n"),
                                  std::string("HTTP/1.1 -20 x\r\n"),
                                  std::string("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
                                  std::string("HTTP/1.1 200 O\rK\r\n"),
                                  std::string("HTTP/1.1 200 O\0K\r\n", 18),
                                  kOk + "no colon\r\n",
                                  kOk + ": no name\r\n",
                                  kOk + "a name: x\r\n",
                                  kOk + " folded: x\r\n",
                                  kOk + "Content-Length: -1\r\n",
                                  kOk + "Content-Length: \r\n",
                                  kOk + "Content-Length: 1 2\r\n",
                                  kOk + "Content-Length: 0x5\r\n",
                                  kOk + "Content-Length: 99999999999999999999\r\n",
                                  kOk + "Content-Length: 1\r\nContent-Length: 2\r\n",
                                  kOk + "Transfer-Encoding: gzip\r\n",
                                  kChunked + "Transfer-Encoding: chunked\r\n",
                                  kChunked + "Content-Length: 5\r\n\r\n",
                                  kChunked + "\r\n\r\n",
                                  kChunked + "\r\nx\r\n",
                                  kChunked + "\r\n-1\r\n",
                                  kChunked + "\r\n2\r\nhi!\r\n",
                                  kChunked + "\r\nffffffffffffffffff\r\n",
                                  kChunked + "\r\n1;" + std::string(300, 'x') + "\r\n"}) {
    auto answer = parse(text);
    ASSERT_FALSE(answer.ok()) << text;
    EXPECT_EQ(answer.error().code, Code::protocol) << text;
    EXPECT_EQ(answer.error().message.find('\n'), std::string::npos);
  }
}

TEST(HttpAnswer, ARefusalStays) {
  HttpAnswerParser parser;
  EXPECT_FALSE(parser.feed("nonsense\r\n").ok());
  EXPECT_FALSE(parser.feed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok());
  EXPECT_EQ(parser.end().error().code, Code::protocol);
  EXPECT_FALSE(parser.done());
}

TEST(HttpAnswer, TooMuchIsRefusedAndTheMostIsNot) {
  HttpLimits limits{64, 8};
  const std::string kBegin = "HTTP/1.1 200 OK\r\n";
  auto with_head = [&](std::size_t size) {
    auto text = kBegin + "Content-Length: 0\r\nX: ";
    return text + std::string(size - text.size() - 4, 'x') + "\r\n\r\n";
  };
  EXPECT_TRUE(parse(with_head(64), limits).ok());
  EXPECT_EQ(parse(with_head(65), limits).error().code, Code::protocol);
  EXPECT_EQ(parse(std::string(65, 'x'), limits).error().code, Code::protocol);
  EXPECT_EQ(parse("HTTP/1.1 100 Continue\r\n\r\n" + with_head(64), limits).error().code, Code::protocol);

  const std::string kChunked = kBegin + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(parse(kBegin + "Content-Length: 8\r\n\r\n12345678", limits).or_throw().body, "12345678");
  EXPECT_EQ(parse(kBegin + "Content-Length: 9\r\n\r\n", limits).error().code, Code::protocol);
  EXPECT_EQ(parse(kChunked + "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n", limits).or_throw().body, "12345678");
  EXPECT_EQ(parse(kChunked + "4\r\n1234\r\n5\r\n", limits).error().code, Code::protocol);
  EXPECT_EQ(parse(kChunked + "0\r\nX: " + std::string(64, 'x'), limits).error().code, Code::protocol);
  EXPECT_EQ(parse(kBegin + "\r\n12345678", limits).or_throw().body, "12345678");
  EXPECT_EQ(parse(kBegin + "\r\n123456789", limits).error().code, Code::protocol);
}

}  // namespace
}  // namespace pliant::net
