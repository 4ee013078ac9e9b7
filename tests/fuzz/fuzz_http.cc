// An HTTP answer by anybody, or one by an honest server, in pieces: the pieces make no difference, what an honest
// server says is understood, and nothing makes it keep more than it may.
//   byte 0: which of the two, and how the honest one tells where its body ends; byte 1: how long the pieces are; the
//   rest: what comes, or the body
#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "net/http_answer.h"

namespace pliant::fuzz {
namespace {

using net::HttpAnswer;

constexpr net::HttpLimits kLimits{1024, 4096};  // small enough to be met

Result<HttpAnswer> parse(std::string_view text, std::size_t piece) {
  net::HttpAnswerParser parser(kLimits);
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    bool done = parser.done();
    PLIANT_TRY(parser.feed(text.substr(0, piece)));
    PLIANT_ASSERT(!done || parser.done());
  }
  PLIANT_TRY(parser.end());
  return std::move(parser).take();
}

void face_a_stranger(std::string_view text, std::size_t piece) {
  auto whole = parse(text, text.size() + 1);
  auto pieces = parse(text, piece);
  PLIANT_ASSERT(whole.ok() == pieces.ok());
  if (whole.ok()) {
    PLIANT_ASSERT(whole.value() == pieces.value());
    PLIANT_ASSERT(whole.value().body.size() <= kLimits.body && whole.value().body.size() <= text.size());
    PLIANT_ASSERT(whole.value().status >= 200 && whole.value().status < 600);
    return;
  }
  PLIANT_ASSERT(whole.error().message == pieces.error().message);
  PLIANT_ASSERT(whole.error().code == Code::protocol || whole.error().code == Code::peer_lost);
  PLIANT_ASSERT(whole.error().message.find('\n') == std::string::npos);
}

/// As long as its first byte says, and so on.
std::string in_chunks(std::string_view body) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  while (!body.empty()) {
    auto chunk = body.substr(0, static_cast<unsigned char>(body[0]) + 1U);
    text += {kDigits[chunk.size() >> 8], kDigits[chunk.size() >> 4 & 15], kDigits[chunk.size() & 15]};
    text.append("\r\n").append(chunk).append("\r\n");
    body.remove_prefix(chunk.size());
  }
  return text + "0\r\n\r\n";
}

std::string answer_with(std::string_view body, int how) {
  std::string head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nServer: honest\r\n";
  if (how == 0) return head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
  if (how == 1) return head + "Transfer-Encoding: chunked\r\n\r\n" + in_chunks(body);
  return head + "\r\n" + std::string(body);
}

void meet_an_honest_server(std::string_view body, int how, std::size_t piece) {
  auto answer = parse(answer_with(body, how), piece);
  PLIANT_ASSERT(answer.ok() == (body.size() <= kLimits.body));
  if (answer.ok())
    PLIANT_ASSERT((answer.value() == HttpAnswer{200, std::string(body)}));
  else
    PLIANT_ASSERT(answer.error().code == Code::protocol);
}

Bytes input_of(std::uint8_t which, std::uint8_t piece, const std::string& text) {
  Bytes bytes = {which, piece};
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (std::uint8_t how = 0; how < 3; ++how) {
    all.push_back(input_of(0, how, answer_with("body", how)));
    all.push_back(input_of(how + 1, 3, "another body, of some length"));
  }
  all.push_back(input_of(0, 200, "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"));
  all.push_back(
      input_of(0, 9, "HTTP/1.0 400 x\r\nTransfer-Encoding: chunked\r\n\r\n2 ;a=b\r\nhi\r\n0\r\nX: y\r\n\r\n"));
  all.push_back(input_of(0, 50, answer_with(std::string(kLimits.body, 'x'), 0)));
  all.push_back(input_of(1, 255, std::string(kLimits.body, 'x')));
  return all;
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 2) return;
  std::string_view text(reinterpret_cast<const char*>(input.data()) + 2, input.size() - 2);
  auto piece = std::size_t{input[1]} + 1;
  if (input[0] % 4 == 0)
    face_a_stranger(text, piece);
  else
    meet_an_honest_server(text, input[0] % 4 - 1, piece);
}

}  // namespace pliant::fuzz
