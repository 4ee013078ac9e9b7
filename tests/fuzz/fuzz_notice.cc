// What a metadata service answers, by anybody: it is understood or refused, and whatever a notice says is short and
// sensible.
//   byte 0: the HTTP status; byte 1: what is known of this machine's name; the rest: the answer's body
#include <algorithm>
#include <array>
#include <string>

#include "apps/pliant/notice_answer.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {
namespace {

using Kind = cli::NoticeAnswer::Kind;

constexpr std::array kStatuses = {200, 204, 401, 404, 503};

Bytes input_of(std::uint8_t status, std::uint8_t name, const std::string& body) {
  Bytes bytes = {status, name};
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

std::optional<std::string> name_of(std::uint8_t byte) {
  if (byte % 3 == 0) return std::nullopt;
  return byte % 3 == 1 ? "" : "me";
}

bool is_line(const std::string& text, std::size_t most) {
  return text.size() <= most && std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

void check_notice(const net::HttpAnswer& answer, const std::optional<std::string>& name) {
  auto now = cli::WallTime(std::chrono::seconds(1'505'722'800));
  auto understood = cli::understand_notice(answer, now, name);
  if (!understood.ok()) {
    PLIANT_ASSERT(is_line(understood.error().message, 300));
    PLIANT_ASSERT(understood.error().code == (answer.status == 200 ? Code::protocol : Code::peer_lost));
    return;
  }
  const auto& [kind, notice] = understood.value();
  PLIANT_ASSERT((kind == Kind::wants_token) == (answer.status == 401));
  PLIANT_ASSERT(kind != Kind::wants_name || (answer.status == 200 && !name));
  PLIANT_ASSERT(kind != Kind::notice || answer.status == 200);
  PLIANT_ASSERT((kind == Kind::notice) == !notice.words.empty());
  PLIANT_ASSERT(is_line(notice.words, 100));
  auto farthest = std::chrono::duration<double>(cli::kFarthest).count();
  PLIANT_ASSERT(!notice.seconds || (kind == Kind::notice && *notice.seconds >= 0 && *notice.seconds <= farthest));
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::string kEvent = R"({"EventType":"Preempt","EventStatus":"Scheduled","Resources":["Me"],)"
                             R"("NotBefore":"Mon, 18 Sep 2017 08:20:30 GMT"})";
  return {input_of(0, 0, ""),
          input_of(1, 0, ""),
          input_of(2, 0, ""),
          input_of(0, 0, "TRUE"),
          input_of(0, 0, "FALSE\n"),
          input_of(0, 0, "TERMINATE_ON_HOST_MAINTENANCE"),
          input_of(0, 0, R"({"seconds":30})"),
          input_of(0, 0, R"({"action":"repair","seconds":1.5})"),
          input_of(0, 0, "2017-09-18T08:22:00Z"),
          input_of(0, 0, "2017-09-18T10:22:00.5+02:00"),
          input_of(0, 0, R"({"action":"terminate","time":"2017-09-18T08:22:00Z"})"),
          input_of(3, 0, R"({"action":"terminate","time":"2017-09-18T08:22:00Z"})"),
          input_of(4, 0, "TRUE"),
          input_of(0, 0, R"({"DocumentIncarnation":1,"Events":[]})"),
          input_of(0, 1, R"({"DocumentIncarnation":2,"Events":[)" + kEvent + "]}"),
          input_of(0, 2, R"({"Events":[{"EventType":"Terminate","EventStatus":"Started"},)" + kEvent + "]}")};
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 2) return;
  net::HttpAnswer answer{kStatuses[input[0] % kStatuses.size()],
                         std::string(reinterpret_cast<const char*>(input.data()) + 2, input.size() - 2)};
  check_notice(answer, name_of(input[1]));
  if (auto token = cli::understand_token(answer); token.ok()) {
    PLIANT_ASSERT(!token.value().empty() && is_line(token.value(), answer.body.size()));
    PLIANT_ASSERT(token.value().find(' ') == std::string::npos);
  }
  if (auto name = cli::understand_name(answer); name.ok()) PLIANT_ASSERT(is_line(name.value(), 256));
}

}  // namespace pliant::fuzz
