#include "net/http_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace pliant::net {
namespace {

constexpr std::size_t kLongestChunkLine = 256;  // a size, and extensions that nobody uses

Error nonsense(const std::string& what) { return Error{Code::protocol, "not an HTTP answer: " + what}; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Nothing unless the text is a number and nothing else.
std::optional<std::uint64_t> number_in(std::string_view text, int base) {
  std::uint64_t number = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

Status HttpAnswerParser::feed(std::string_view bytes) {
  if (failure_) return *failure_;
  while (!bytes.empty() && !done()) {
    began_ = true;
    bool body = state_ == State::fixed || state_ == State::chunk || state_ == State::to_end;
    if (auto status = body ? take_body(bytes) : take_line(bytes); !status.ok()) {
      failure_ = status.error();
      return status;
    }
  }
  return {};
}

Status HttpAnswerParser::end() {
  if (failure_) return *failure_;
  if (state_ == State::to_end) state_ = State::done;
  if (done()) return {};
  return Error{Code::peer_lost, began_ ? "it hung up in the middle of its answer" : "it hung up without an answer"};
}

HttpAnswer HttpAnswerParser::take() && {
  PLIANT_ASSERT(done());
  return std::move(answer_);
}

// ---- lines ----

Status HttpAnswerParser::take_line(std::string_view& bytes) {
  auto end = bytes.find('\n');
  bool whole = end != std::string_view::npos;
  auto part = bytes.substr(0, whole ? end + 1 : bytes.size());
  PLIANT_TRY(make_room(part.size()));
  line_ += part;
  bytes.remove_prefix(part.size());
  if (!whole) return {};
  auto line = std::exchange(line_, {});
  if (!line.ends_with("\r\n")) return nonsense("a line that ends in nothing but LF");
  line.resize(line.size() - 2);
  if (line.find_first_of(std::string_view("\r\0", 2)) != std::string::npos) return nonsense("stray bytes in a line");
  return understand(line);
}

Status HttpAnswerParser::make_room(std::size_t bytes) {
  if (state_ == State::chunk_size || state_ == State::chunk_end) {
    if (line_.size() + bytes > kLongestChunkLine) return nonsense("the size of a chunk does not end");
    return {};
  }
  if (bytes > head_left_) return nonsense(fmt::format("a head of more than {} bytes", limits_.head));
  head_left_ -= bytes;
  return {};
}

Status HttpAnswerParser::understand(std::string_view line) {
  switch (state_) {
    case State::status:
      return understand_status(line);
    case State::headers:
      return line.empty() ? begin_body() : understand_header(line);
    case State::chunk_size:
      return understand_chunk_size(line);
    case State::chunk_end:
      if (!line.empty()) return nonsense("a chunk that is longer than it says");
      state_ = State::chunk_size;
      return {};
    default:  // trailers
      if (line.empty()) state_ = State::done;
      return {};
  }
}

Status HttpAnswerParser::understand_status(std::string_view line) {
  constexpr std::string_view kBegin = "HTTP/1.";
  constexpr std::size_t kSize = kBegin.size() + 5;  // then one digit, a space and three digits
  bool good = line.starts_with(kBegin) && line.size() >= kSize && is_digit(line[kBegin.size()]) &&
              line[kBegin.size() + 1] == ' ' && (line.size() == kSize || line[kSize] == ' ');
  if (!good) return nonsense("no status at its beginning");
  auto status = number_in(line.substr(kSize - 3, 3), 10);
  if (!status || *status < 100 || *status > 599) return nonsense("a status that does not exist");
  answer_.status = static_cast<int>(*status);
  state_ = State::headers;
  return {};
}

/// Only how the body ends is of interest. Where that could be read in two ways, it is not read at all.
Status HttpAnswerParser::understand_header(std::string_view line) {
  auto colon = line.find(':');
  if (colon == std::string_view::npos || !is_name(line.substr(0, colon))) return nonsense("a header without a name");
  auto name = line.substr(0, colon);
  auto value = trimmed(line.substr(colon + 1));
  if (same_word(name, "transfer-encoding")) {
    if (chunked_ || !same_word(value, "chunked")) return nonsense("an unknown transfer encoding");
    chunked_ = true;
  }
  if (same_word(name, "content-length")) {
    auto length = number_in(value, 10);
    if (!length || (length_ && *length_ != *length)) return nonsense("no length that can be understood");
    length_ = length;
  }
  return {};
}

Status HttpAnswerParser::begin_body() {
  if (answer_.status == 101) return nonsense("another protocol that nobody asked for");
  if (chunked_ && length_) return nonsense("two lengths");
  auto length = std::exchange(length_, std::nullopt);
  bool chunked = std::exchange(chunked_, false);
  if (answer_.status < 200) {  // "100 Continue": the answer is still to come
    state_ = State::status;
    return {};
  }
  if (answer_.status == 204 || answer_.status == 304) length = 0, chunked = false;
  if (length) return expect(*length, State::fixed);
  state_ = chunked ? State::chunk_size : State::to_end;
  return {};
}

Status HttpAnswerParser::understand_chunk_size(std::string_view line) {
  auto size = number_in(trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return nonsense("a chunk without a size");
  if (*size > 0) return expect(*size, State::chunk);
  state_ = State::trailers;
  return {};
}

// ---- the body ----

Status HttpAnswerParser::expect(std::uint64_t bytes, State where) {
  if (bytes > limits_.body - answer_.body.size())
    return nonsense(fmt::format("a body of more than {} bytes", limits_.body));
  left_ = bytes;
  state_ = bytes > 0 ? where : State::done;
  return {};
}

Status HttpAnswerParser::take_body(std::string_view& bytes) {
  if (state_ == State::to_end) {
    PLIANT_TRY(expect(bytes.size(), State::to_end));  // never nothing
    answer_.body += std::exchange(bytes, {});
    return {};
  }
  auto part = bytes.substr(0, left_);
  answer_.body += part;
  bytes.remove_prefix(part.size());
  left_ -= part.size();
  if (left_ == 0) state_ = state_ == State::chunk ? State::chunk_end : State::done;
  return {};
}

}  // namespace pliant::net
