// What an HTTP/1.1 server answers, taken apart as it comes. A state machine over bytes; it owns no socket.
//
//   state        | what comes          | then
//   status       | HTTP/1.x NNN        | headers
//   headers      | Name: value         | headers
//                | an empty line       | status (after 1xx), done (no body), fixed, chunk_size or to_end
//   fixed        | Content-Length bytes| done
//   chunk_size   | a size              | chunk, or trailers if it is 0
//   chunk        | so many bytes       | chunk_end
//   chunk_end    | an empty line       | chunk_size
//   trailers     | Name: value         | trailers
//                | an empty line       | done
//   to_end       | bytes               | to_end, until the connection is closed: done
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pliant::net {

struct HttpAnswer {
  int status = 0;
  std::string body;
  bool operator==(const HttpAnswer&) const = default;
};

/// No more than this is kept of what a stranger says.
struct HttpLimits {
  std::size_t head = 16 * 1024;  ///< status, headers and trailers together, those of interim answers included
  std::size_t body = 1024 * 1024;
};

/// For answers to any method but HEAD. How the bytes are cut into pieces makes no difference.
class HttpAnswerParser {
 public:
  explicit HttpAnswerParser(HttpLimits limits = {}) : limits_(limits), head_left_(limits.head) {}

  /// Code::protocol if this is no answer, or too much of one; then it stays so. What comes behind the answer is
  /// ignored.
  Status feed(std::string_view bytes);
  /// The connection was closed: the end of some answers, Code::peer_lost for others.
  Status end();
  bool done() const { return state_ == State::done; }
  /// REQUIRES: done().
  HttpAnswer take() &&;

 private:
  enum class State : std::uint8_t { status, headers, fixed, chunk_size, chunk, chunk_end, trailers, to_end, done };
  Status take_line(std::string_view& bytes);
  Status make_room(std::size_t bytes);
  Status understand(std::string_view line);
  Status understand_status(std::string_view line);
  Status understand_header(std::string_view line);
  Status understand_chunk_size(std::string_view line);
  Status begin_body();
  Status expect(std::uint64_t bytes, State where);
  Status take_body(std::string_view& bytes);

  HttpLimits limits_;
  State state_ = State::status;
  std::optional<Error> failure_;
  std::string line_;       // the part of a line that has come
  std::size_t head_left_;  // of limits_.head
  std::size_t left_ = 0;   // of the body, or of the chunk
  std::optional<std::uint64_t> length_;
  bool chunked_ = false;
  bool began_ = false;
  HttpAnswer answer_;
};

}  // namespace pliant::net
