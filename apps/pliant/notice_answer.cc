#include "apps/pliant/notice_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "net/http_json.h"

namespace pliant::cli {
namespace {

using net::member;
using nlohmann::json;
using Kind = NoticeAnswer::Kind;

constexpr std::size_t kMostWords = 100;  // characters
constexpr std::size_t kLongestMachineName = 256;
constexpr std::size_t kLongestToken = 4096;

Error nonsense(const std::string& what) { return Error{Code::protocol, "not what a metadata service says: " + what}; }

Error no_answer(int status) { return Error{Code::peer_lost, fmt::format("HTTP status {}", status)}; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  auto first = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// One short line, whatever they sent.
std::string words_of(std::string_view text) {
  std::string words(text.substr(0, kMostWords));
  std::ranges::replace_if(
      words, [](char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

// ---- times ----

/// Reads a text from its beginning. Once something else is there, nothing is good any more.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  int number(std::size_t digits) {
    auto part = rest_.substr(0, digits);
    good_ = good_ && part.size() == digits && std::ranges::all_of(part, is_digit);
    int value = 0;
    for (char c : part) value = good_ ? value * 10 + (c - '0') : 0;
    rest_.remove_prefix(part.size());
    return value;
  }
  void skip(std::string_view text) {
    good_ = good_ && rest_.starts_with(text);
    if (good_) rest_.remove_prefix(text.size());
  }
  bool skip_if(std::string_view text) {
    if (!good_ || !rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void skip_digits() {
    while (!rest_.empty() && is_digit(rest_[0])) rest_.remove_prefix(1);
  }
  /// Which of the words comes; they have no common beginning.
  template <std::size_t kCount>
  unsigned one_of(const std::array<std::string_view, kCount>& words) {
    for (unsigned i = 0; i < kCount; ++i)
      if (skip_if(words[i])) return i;
    good_ = false;
    return 0;
  }
  /// All of it was as expected.
  bool whole() const { return good_ && rest_.empty(); }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  std::string_view rest_;
  bool good_ = true;
};

struct Time {
  int hour = 0, minute = 0, second = 0;
};

/// "08:22:00".
Time read_time(Reader& reader) {
  Time time;
  time.hour = reader.number(2);
  reader.skip(":");
  time.minute = reader.number(2);
  reader.skip(":");
  time.second = reader.number(2);
  return time;
}

std::optional<WallTime> time_of(int year, unsigned month, unsigned day, const Time& time) {
  std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  bool exists = date.ok() && time.hour < 24 && time.minute < 60 && time.second <= 60;  // leap seconds
  if (!exists) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(time.hour) + std::chrono::minutes(time.minute) +
         std::chrono::seconds(time.second);
}

/// How far a place's clocks are ahead: "Z" or "+02:00".
std::chrono::minutes read_zone(Reader& reader) {
  if (reader.skip_if("Z")) return {};
  int sign = reader.skip_if("-") ? -1 : 1;
  if (sign > 0) reader.skip("+");
  auto hours = reader.number(2);
  reader.skip(":");
  return std::chrono::minutes(sign * (hours * 60 + reader.number(2)));
}

std::optional<WallTime> parse_iso_time(std::string_view text) {
  Reader reader(text);
  auto year = reader.number(4);
  reader.skip("-");
  auto month = reader.number(2);
  reader.skip("-");
  auto day = reader.number(2);
  reader.skip("T");
  auto time = read_time(reader);
  if (reader.skip_if(".")) reader.skip_digits();
  auto zone = read_zone(reader);
  if (!reader.whole()) return std::nullopt;
  auto there = time_of(year, static_cast<unsigned>(month), static_cast<unsigned>(day), time);
  return there ? std::optional(*there - zone) : std::nullopt;
}

std::optional<WallTime> parse_http_time(std::string_view text) {
  constexpr std::array<std::string_view, 7> kDays = {"Mon, ", "Tue, ", "Wed, ", "Thu, ", "Fri, ", "Sat, ", "Sun, "};
  constexpr std::array<std::string_view, 12> kMonths = {" Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ",
                                                        " Jul ", " Aug ", " Sep ", " Oct ", " Nov ", " Dec "};
  Reader reader(text);
  reader.one_of(kDays);
  auto day = reader.number(2);
  auto month = reader.one_of(kMonths) + 1;
  auto year = reader.number(4);
  reader.skip(" ");
  auto time = read_time(reader);
  reader.skip(" GMT");
  return reader.whole() ? time_of(year, month, static_cast<unsigned>(day), time) : std::nullopt;
}

std::optional<double> sensible(double seconds) {
  if (seconds > std::chrono::duration<double>(kFarthest).count()) return std::nullopt;
  return std::max(seconds, 0.0);
}

std::optional<double> seconds_until(const std::string& time, WallTime now) {
  auto then = parse_notice_time(time);
  return then ? sensible(std::chrono::duration<double>(*then - now).count()) : std::nullopt;
}

// ---- bodies ----

/// Empty if it is none.
std::string text_in(const json& object, const char* name) {
  const auto& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

NoticeAnswer notice(std::string_view words, std::optional<double> seconds) {
  return {Kind::notice, {words_of(words), seconds}};
}

Result<NoticeAnswer> understand_text(std::string_view text, WallTime now) {
  for (auto idle : {"", "FALSE", "NONE", "MIGRATE_ON_HOST_MAINTENANCE"})
    if (same_word(text, idle)) return NoticeAnswer{};
  if (same_word(text, "TRUE")) return notice("preempted", std::nullopt);
  if (same_word(text, "TERMINATE_ON_HOST_MAINTENANCE")) return notice(text, std::nullopt);
  std::string time(text);
  if (!parse_notice_time(time)) return nonsense("neither a word nor a time that is known");
  return notice("terminate at " + time, seconds_until(time, now));
}

/// AWS's, and one's own.
Result<NoticeAnswer> understand_action(const json& told, WallTime now) {
  const auto& action = member(told, "action");
  const auto& seconds = member(told, "seconds");
  if (!action.is_null() && !action.is_string()) return nonsense("an action that is no text");
  if (!seconds.is_null() && !seconds.is_number()) return nonsense("seconds that are no number");
  auto words = text_in(told, "action");
  bool idle = action.is_null() ? seconds.is_null() : words.empty() || same_word(words, "none");
  if (idle) return NoticeAnswer{};
  if (words.empty()) words = fmt::format("in {:g} s", seconds.get<double>());
  if (seconds.is_number()) return notice(words, sensible(seconds.get<double>()));
  auto time = text_in(told, "time");
  return notice(time.empty() ? words : words + " at " + time, seconds_until(time, now));
}

/// Azure writes names as they were typed, and means the same by all ways to type them.
bool is_about(const json& event, const std::string& name) {
  const auto& machines = member(event, "Resources");
  if (name.empty() || !machines.is_array() || machines.empty()) return true;
  return std::ranges::any_of(machines, [&](const json& machine) {
    return machine.is_string() && same_word(machine.get_ref<const std::string&>(), name);
  });
}

Result<NoticeAnswer> understand_events(const json& events, WallTime now, const std::optional<std::string>& name) {
  constexpr double kNobodyKnows = std::numeric_limits<double>::infinity();
  if (!events.is_array()) return nonsense("events that are no list");
  if (!name) return NoticeAnswer{Kind::wants_name};
  NoticeAnswer soonest;
  for (const auto& event : events) {
    auto type = text_in(event, "EventType");
    if ((type != "Preempt" && type != "Terminate") || !is_about(event, *name)) continue;
    auto time = text_in(event, "NotBefore");
    auto seconds = seconds_until(time, now);
    if (text_in(event, "EventStatus") == "Started") seconds = 0;  // it has no time any more
    bool sooner = seconds.value_or(kNobodyKnows) < soonest.notice.seconds.value_or(kNobodyKnows);
    if (soonest.kind == Kind::nothing || sooner)
      soonest = notice(time.empty() ? type : type + ", not before " + time, seconds);
  }
  return soonest;
}

}  // namespace

std::optional<WallTime> parse_notice_time(const std::string& text) {
  auto time = parse_iso_time(text);
  return time ? time : parse_http_time(text);
}

Result<NoticeAnswer> understand_notice(const net::HttpAnswer& answer, WallTime now,
                                       const std::optional<std::string>& name) {
  if (answer.status == 204 || answer.status == 404) return NoticeAnswer{};
  if (answer.status == 401) return NoticeAnswer{Kind::wants_token};
  if (answer.status != 200) return no_answer(answer.status);
  auto text = trimmed(answer.body);
  if (!text.starts_with('{')) return understand_text(text, now);
  auto told = net::parse_json(text);
  if (!told.is_object()) return nonsense("JSON that is none");
  if (told.contains("Events")) return understand_events(told["Events"], now, name);
  if (told.empty() || told.contains("action") || told.contains("seconds")) return understand_action(told, now);
  return nonsense("neither action, seconds nor Events");
}

Result<std::string> understand_token(const net::HttpAnswer& answer) {
  if (answer.status != 200) return no_answer(answer.status);
  auto token = trimmed(answer.body);
  bool good = !token.empty() && token.size() <= kLongestToken &&
              std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (!good) return nonsense("a token that is none");
  return std::string(token);
}

Result<std::string> understand_name(const net::HttpAnswer& answer) {
  if (answer.status == 404) return std::string();
  if (answer.status != 200) return no_answer(answer.status);
  auto name = trimmed(answer.body);
  bool good = name.size() <= kLongestMachineName && std::ranges::all_of(name, [](unsigned char c) {
                return std::isalnum(c) || c == '-' || c == '_' || c == '.';
              });
  return good ? std::string(name) : std::string();
}

}  // namespace pliant::cli
