#include "apps/pliant/notice_answer.h"

#include <gtest/gtest.h>

#include <ostream>

namespace pliant::cli {

void PrintTo(const NoticeAnswer& answer, std::ostream* out) {
  *out << "kind " << static_cast<int>(answer.kind) << " '" << answer.notice.words << "' ";
  if (answer.notice.seconds)
    *out << *answer.notice.seconds << " s";
  else
    *out << "no time";
}

namespace {

using Kind = NoticeAnswer::Kind;

const WallTime kNow = parse_notice_time("2017-09-18T08:20:00Z").value();

Result<NoticeAnswer> heard(int status, const std::string& body, const std::optional<std::string>& name = "me") {
  return understand_notice({status, body}, kNow, name);
}

NoticeAnswer understood(const std::string& body, const std::optional<std::string>& name = "me") {
  auto answer = heard(200, body, name);
  EXPECT_TRUE(answer.ok()) << body << ": " << answer.error().message;
  return answer.ok() ? answer.value() : NoticeAnswer{};
}

NoticeAnswer notice(const std::string& words, std::optional<double> seconds) {
  return {Kind::notice, {words, seconds}};
}

void expect_no_answer(int status, const std::string& body, Code code) {
  auto answer = heard(status, body);
  ASSERT_FALSE(answer.ok()) << status << ' ' << body;
  EXPECT_EQ(answer.error().code, code) << status << ' ' << body;
  EXPECT_FALSE(answer.error().message.empty());
}

long long unix_time(const std::string& text) {
  auto time = parse_notice_time(text);
  return time ? time->time_since_epoch().count() : -1;
}

// ---- times ----

TEST(NoticeTime, IsUnderstood) {
  EXPECT_EQ(unix_time("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(unix_time("2017-09-18T08:22:00Z"), 1505722920);
  EXPECT_EQ(unix_time("2017-09-18T08:22:00.987654321Z"), 1505722920);
  EXPECT_EQ(unix_time("2017-09-18T08:22:00+00:00"), 1505722920);
  EXPECT_EQ(unix_time("2017-09-18T10:22:00+02:00"), 1505722920);
  EXPECT_EQ(unix_time("2017-09-18T02:52:00-05:30"), 1505722920);
  EXPECT_EQ(unix_time("2016-02-29T23:59:60Z"), 1456790400);
  EXPECT_EQ(unix_time("9999-12-31T23:59:59Z"), 253402300799);
  EXPECT_EQ(unix_time("Mon, 19 Sep 2016 18:29:47 GMT"), 1474309787);
  EXPECT_EQ(unix_time("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
}

TEST(NoticeTime, NonsenseIsNoTime) {
  for (const char* text : {"",
                           "2017",
                           "2017-09-18",
                           "2017-09-18T08:22Z",
                           "2017-09-18T08:22:00",
                           "2017-09-18 08:22:00Z",
                           "2017-09-18T08:22:00Zx",
                           " 2017-09-18T08:22:00Z",
                           "2017-09-18T08:22:00z",
                           "2017-09-18T08:22:00+0200",
                           "2017-09-18T08:22:00+02",
                           "2017-13-18T08:22:00Z",
                           "2017-00-18T08:22:00Z",
                           "2017-02-29T08:22:00Z",
                           "2017-09-31T08:22:00Z",
                           "2017-09-00T08:22:00Z",
                           "2017-09-18T24:22:00Z",
                           "2017-09-18T08:60:00Z",
                           "2017-09-18T08:22:61Z",
                           "-017-09-18T08:22:00Z",
                           "2017-+9-18T08:22:00Z",
                           "12017-09-18T08:22:00Z",
                           "Mon, 19 Sep 2016 18:29:47",
                           "Mon, 19 Sep 2016 18:29:47 CET",
                           "Mon, 9 Sep 2016 18:29:47 GMT",
                           "Mon, 31 Sep 2016 18:29:47 GMT",
                           "mon, 19 sep 2016 18:29:47 GMT",
                           "19 Sep 2016 18:29:47 GMT",
                           "Monday, 19-Sep-16 18:29:47 GMT",
                           "1505722920"})
    EXPECT_FALSE(parse_notice_time(text)) << text;
}

// ---- nothing, and no answer ----

TEST(NoticeAnswer, Nothing) {
  for (int status : {204, 404}) {
    EXPECT_EQ(heard(status, "").or_throw(), NoticeAnswer{});
    EXPECT_EQ(heard(status, "<html>not found</html>").or_throw(), NoticeAnswer{});
    EXPECT_EQ(heard(status, R"({"action": "terminate"})").or_throw(), NoticeAnswer{}) << "the status says it";
  }
  for (const char* body :
       {"", " \r\n", "FALSE", "FALSE\n", "false", "NONE", "MIGRATE_ON_HOST_MAINTENANCE", "{}", " { } ",
        R"({"action": "none"})", R"({"action": "None", "seconds": 3})", R"({"action": ""})", R"({"action": null})",
        R"({"seconds": null})", R"({"action": null, "seconds": null, "more": 1})", R"({"Events": []})",
        R"({"DocumentIncarnation": 1, "Events": []})"})
    EXPECT_EQ(understood(body), NoticeAnswer{}) << body;
}

TEST(NoticeAnswer, BadStatusesAreNoAnswer) {
  for (int status : {201, 202, 206, 301, 302, 307, 400, 403, 405, 410, 429, 500, 502, 503, 504}) {
    expect_no_answer(status, "", Code::peer_lost);
    expect_no_answer(status, R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})", Code::peer_lost);
    expect_no_answer(status, "TRUE", Code::peer_lost);
  }
}

TEST(NoticeAnswer, NonsenseIsNoAnswer) {
  const std::string bodies[] = {"<html><body>TRUE</body></html>",
                                "TRUE FALSE",
                                "terminate",
                                "not-a-time",
                                "1",
                                "null",
                                "true!",
                                "[]",
                                R"([{"action": "terminate"}])",
                                "\"terminate\"",
                                "{",
                                R"({"action": "terminate")",
                                R"({"action": "terminate"} x)",
                                R"({"action": 1})",
                                R"({"action": true})",
                                R"({"action": ["terminate"]})",
                                R"({"action": {"action": "terminate"}})",
                                R"({"seconds": "30"})",
                                R"({"seconds": true})",
                                R"({"seconds": 1e999})",
                                R"({"seconds": []})",
                                R"({"error": "no such thing"})",
                                R"({"time": "2017-09-18T08:22:00Z"})",
                                R"({"Events": {}})",
                                R"({"Events": null})",
                                R"({"Events": "Preempt"})",
                                "{\"action\": \"\xff\"}",
                                std::string("TRUE\0", 5),
                                std::string(100, '{')};
  for (const auto& body : bodies) expect_no_answer(200, body, Code::protocol);
}

// ---- AWS ----

TEST(NoticeAnswer, Aws) {
  EXPECT_EQ(understood(R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})"),
            notice("terminate at 2017-09-18T08:22:00Z", 120));
  EXPECT_EQ(understood(R"({"action": "stop", "time": "2017-09-18T08:20:30Z"})"),
            notice("stop at 2017-09-18T08:20:30Z", 30));
  EXPECT_EQ(understood(R"({"action": "hibernate", "time": "2017-09-18T08:20:00Z"})"),
            notice("hibernate at 2017-09-18T08:20:00Z", 0));
  EXPECT_EQ(understood("2017-09-18T08:22:00Z\n"), notice("terminate at 2017-09-18T08:22:00Z", 120));
  EXPECT_EQ(heard(401, "").or_throw().kind, Kind::wants_token);
  EXPECT_EQ(heard(401, R"({"action": "terminate"})").or_throw().kind, Kind::wants_token);
}

TEST(NoticeAnswer, ANoticeCountsWhateverItsTime) {
  EXPECT_EQ(understood(R"({"action": "stop"})"), notice("stop", std::nullopt));
  EXPECT_EQ(understood(R"({"action": "stop", "time": null})"), notice("stop", std::nullopt));
  EXPECT_EQ(understood(R"({"action": "stop", "time": 17})"), notice("stop", std::nullopt));
  EXPECT_EQ(understood(R"({"action": "stop", "time": "soon"})"), notice("stop at soon", std::nullopt));
  EXPECT_EQ(understood("2017-09-18T08:19:59Z").notice.seconds, 0) << "over";
  EXPECT_EQ(understood("1970-01-01T00:00:00Z").notice.seconds, 0);
  EXPECT_EQ(understood("2017-10-18T08:20:00Z").notice.seconds, 30 * 86400) << "the farthest";
  EXPECT_EQ(understood("2017-10-18T08:20:01Z").notice.seconds, std::nullopt);
  EXPECT_EQ(understood("9999-12-31T23:59:59Z"), notice("terminate at 9999-12-31T23:59:59Z", std::nullopt));
}

TEST(NoticeAnswer, Token) {
  EXPECT_EQ(understand_token({200, "AQAEAL=="}).or_throw(), "AQAEAL==");
  EXPECT_EQ(understand_token({200, " AQAEAL==\r\n"}).or_throw(), "AQAEAL==");
  for (const auto& body : {std::string(), std::string(" "), std::string("two words"), std::string("a\r\nX: y"),
                           std::string("\xc3\xa4"), std::string(5000, 'x')})
    EXPECT_EQ(understand_token({200, body}).error().code, Code::protocol) << body;
  for (int status : {204, 400, 401, 403, 404, 500})
    EXPECT_EQ(understand_token({status, "AQAEAL=="}).error().code, Code::peer_lost) << status;
}

// ---- GCP ----

TEST(NoticeAnswer, Gcp) {
  for (const char* body : {"TRUE", "TRUE\n", "true"}) EXPECT_EQ(understood(body), notice("preempted", std::nullopt));
  EXPECT_EQ(understood("TERMINATE_ON_HOST_MAINTENANCE"), notice("TERMINATE_ON_HOST_MAINTENANCE", std::nullopt));
}

// ---- Azure ----

std::string azure(const std::string& events) { return R"({"DocumentIncarnation": 2, "Events": [)" + events + "]}"; }

constexpr const char* kPreempt =
    R"({"EventId": "A123", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine",)"
    R"( "Resources": ["other", "Me"], "NotBefore": "Mon, 18 Sep 2017 08:20:30 GMT"})";

TEST(NoticeAnswer, Azure) {
  auto preempt = notice("Preempt, not before Mon, 18 Sep 2017 08:20:30 GMT", 30);
  EXPECT_EQ(understood(azure(kPreempt)), preempt);
  EXPECT_EQ(understood(azure(kPreempt), "ME"), preempt) << "names have no case";
  EXPECT_EQ(understood(azure(kPreempt), ""), preempt) << "nobody knows the name";
  EXPECT_EQ(understood(azure(kPreempt), "somebody"), NoticeAnswer{});
  EXPECT_EQ(understood(azure(kPreempt), "m"), NoticeAnswer{});
  EXPECT_EQ(understood(azure(kPreempt), std::nullopt).kind, Kind::wants_name);
  EXPECT_EQ(understood(azure(""), std::nullopt).kind, Kind::wants_name) << "so that it is known in time";
}

TEST(NoticeAnswer, AzureEventsThatCount) {
  EXPECT_EQ(understood(azure(R"({"EventType": "Terminate"})")), notice("Terminate", std::nullopt));
  EXPECT_EQ(understood(azure(R"({"EventType": "Preempt", "Resources": []})")).kind, Kind::notice);
  EXPECT_EQ(understood(azure(R"({"EventType": "Preempt", "Resources": "me"})")).kind, Kind::notice);
  EXPECT_EQ(understood(azure(R"({"EventType": "Preempt", "EventStatus": "Started", "NotBefore": ""})")),
            notice("Preempt", 0));
  for (const char* event :
       {R"({"EventType": "Reboot"})", R"({"EventType": "Redeploy"})", R"({"EventType": "Freeze"})", R"({})", "1",
        "null", "[]", R"("Preempt")", R"({"EventType": ["Preempt"]})", R"({"EventType": "preemptive"})",
        R"({"EventType": "Preempt", "Resources": ["you"]})", R"({"EventType": "Preempt", "Resources": [1, null]})"})
    EXPECT_EQ(understood(azure(event)), NoticeAnswer{}) << event;
}

TEST(NoticeAnswer, TheSoonestOfAzuresEventsCounts) {
  const std::string late = R"({"EventType": "Terminate", "NotBefore": "Mon, 18 Sep 2017 08:35:00 GMT"})";
  const std::string unknown = R"({"EventType": "Terminate"})";
  const std::string reboot = R"({"EventType": "Reboot", "NotBefore": "Mon, 18 Sep 2017 08:20:01 GMT"})";
  EXPECT_EQ(understood(azure(late + "," + kPreempt)).notice.seconds, 30);
  EXPECT_EQ(understood(azure(kPreempt + ("," + late))).notice.seconds, 30);
  EXPECT_EQ(understood(azure(unknown + "," + kPreempt + "," + unknown)).notice.seconds, 30);
  EXPECT_EQ(understood(azure(reboot + "," + late)).notice.seconds, 900);
}

TEST(NoticeAnswer, Name) {
  EXPECT_EQ(understand_name({200, "scale-set_3\n"}).or_throw(), "scale-set_3");
  EXPECT_EQ(understand_name({404, "not found"}).or_throw(), "");
  for (const auto& body : {std::string(), std::string(R"({"Events": []})"), std::string("two words"),
                           std::string("<html>"), std::string(300, 'x')})
    EXPECT_EQ(understand_name({200, body}).or_throw(), "") << body;
  for (int status : {400, 401, 429, 500, 503})
    EXPECT_EQ(understand_name({status, "name"}).error().code, Code::peer_lost) << status;
}

// ---- one's own ----

TEST(NoticeAnswer, OnesOwn) {
  EXPECT_EQ(understood(R"({"seconds": 30})"), notice("in 30 s", 30));
  EXPECT_EQ(understood(R"({"seconds": 0.5})"), notice("in 0.5 s", 0.5));
  EXPECT_EQ(understood(R"({"seconds": 0})"), notice("in 0 s", 0));
  EXPECT_EQ(understood(R"({"seconds": -7})"), notice("in -7 s", 0));
  EXPECT_EQ(understood(R"({"seconds": 1e300})"), notice("in 1e+300 s", std::nullopt));
  EXPECT_EQ(understood(R"({"action": null, "seconds": 5})"), notice("in 5 s", 5));
  EXPECT_EQ(understood(R"({"action": "repair", "seconds": 600})"), notice("repair", 600));
  EXPECT_EQ(understood(R"({"action": "repair", "seconds": 600, "time": "2017-09-18T08:22:00Z"})"),
            notice("repair", 600));
  EXPECT_EQ(understood(R"({"action": "repair", "who": {"knows": [1, 2]}})"), notice("repair", std::nullopt));
}

TEST(NoticeAnswer, WordsAreOneShortLine) {
  EXPECT_EQ(understood("{\"action\": \"a\\nb\\u0000\xc3\xa4\\u001b[1m\"}").notice.words, "a?b????[1m");
  EXPECT_EQ(understood(R"({"action": ")" + std::string(1000, 'x') + "\"}").notice.words, std::string(100, 'x'));
}

TEST(NoticeAnswer, DepthIsNoTrouble) {
  const std::string deep = std::string(30'000, '[') + std::string(30'000, ']');
  EXPECT_EQ(understood(R"({"action": "stop", "more": )" + deep + "}"), notice("stop", std::nullopt));
  EXPECT_EQ(understood(azure(deep)), NoticeAnswer{});
}

}  // namespace
}  // namespace pliant::cli
