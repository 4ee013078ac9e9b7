#include "apps/pliant/notice_watch.h"

#include <gtest/gtest.h>

#include "cli/notice_service.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;
using net::hear_request;
using net::LoopThread;
using net::say;
using net::until_it_hangs_up;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- each cloud ----

TEST(NoticeWatch, Aws) {
  Service service({kNothing, kNothing, kNotice});
  Watcher watcher(service.url("/latest/meta-data/spot/instance-action"));
  EXPECT_EQ(watcher.notice(), (SpotNotice{"terminate at 2017-09-18T08:22:00Z", 120}));
  EXPECT_EQ(service.questions(), std::vector<std::string>(3, "GET /latest/meta-data/spot/instance-action"));
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST(NoticeWatch, NobodyIsAskedAfterTheNotice) {
  Service service({kNotice});
  Watcher watcher(service.url());
  watcher.notice();
  watcher.linger();
  EXPECT_EQ(service.callers(), 1);
  watcher.notice();  // still the one
}

TEST(NoticeWatch, AwsWithTokens) {
  const std::string kWanted = answer("401 Unauthorized", "<html>a token</html>");
  Service service({kWanted, ok("first=="), kNothing, kNothing, kWanted, ok("second==\n"), kNotice});
  Watcher watcher(service.url("/latest/meta-data/spot/instance-action"));
  EXPECT_EQ(watcher.notice().seconds, 120);
  const std::string kGet = "GET /latest/meta-data/spot/instance-action";
  const std::string kPut = "PUT /latest/api/token";
  EXPECT_EQ(service.questions(), (std::vector<std::string>{kGet, kPut, kGet, kGet, kGet, kPut, kGet}));
  const std::string kHeader = "X-aws-ec2-metadata-token: ";
  auto heard = service.heard();
  EXPECT_FALSE(has(heard[0], kHeader));
  for (int i : {1, 5}) EXPECT_TRUE(has(heard[i], "\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n")) << heard[i];
  for (int i : {2, 3, 4}) EXPECT_TRUE(has(heard[i], "\r\n" + kHeader + "first==\r\n")) << heard[i];
  EXPECT_TRUE(has(heard[6], "\r\n" + kHeader + "second==\r\n")) << heard[6];
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST(NoticeWatch, TokensThatAreNotGoodEnoughAreTrouble) {
  Service service({Turn([&](const Fd& socket) {
    say(socket, service.questions().back().starts_with("PUT") ? ok("token") : answer("401 Unauthorized"));
  })});
  Watcher watcher(service.url());
  EXPECT_TRUE(has(watcher.trouble(), "not good enough")) << watcher.trouble();
  auto questions = service.questions();
  ASSERT_GE(questions.size(), 15U);
  for (std::size_t i = 0; i < 15; ++i)
    EXPECT_EQ(questions[i], i % 3 == 1 ? "PUT /latest/api/token" : "GET /notice") << i;
}

TEST(NoticeWatch, NoTokenIsTrouble) {
  Service service({Turn([&](const Fd& socket) {
    say(socket, service.questions().back().starts_with("PUT") ? answer("403 Forbidden") : answer("401 Unauthorized"));
  })});
  Watcher watcher(service.url());
  EXPECT_TRUE(has(watcher.trouble(), "no token: HTTP status 403")) << watcher.trouble();
}

TEST(NoticeWatch, Gcp) {
  Service service({ok("FALSE"), ok("FALSE\n"), ok("TRUE")});
  Watcher watcher(service.url("/computeMetadata/v1/instance/preempted"));
  EXPECT_EQ(watcher.notice(), (SpotNotice{"preempted", std::nullopt}));
  for (const auto& request : service.heard()) EXPECT_TRUE(has(request, "\r\nMetadata-Flavor: Google\r\n")) << request;
  EXPECT_EQ(service.callers(), 3);
}

std::string azure_preempts(const std::string& machine) {
  return ok(R"({"DocumentIncarnation": 3, "Events": [{"EventType": "Preempt", "Resources": [")" + machine +
            R"("], "NotBefore": "Mon, 18 Sep 2017 08:20:30 GMT"}]})");
}

TEST(NoticeWatch, Azure) {
  const std::string kNone = ok(R"({"DocumentIncarnation": 1, "Events": []})");
  Service service({kNone, ok("set_1"), kNone, azure_preempts("set_2"), azure_preempts("set_1")});
  const std::string kPath = "/metadata/scheduledevents?api-version=2020-07-01";
  Watcher watcher(service.url(kPath));
  EXPECT_EQ(watcher.notice(), (SpotNotice{"Preempt, not before Mon, 18 Sep 2017 08:20:30 GMT", 30}));
  EXPECT_EQ(service.questions(),
            (std::vector<std::string>{"GET " + kPath,
                                      "GET /metadata/instance/compute/name?api-version=2021-02-01&format=text",
                                      "GET " + kPath, "GET " + kPath, "GET " + kPath}));
  for (const auto& request : service.heard()) EXPECT_TRUE(has(request, "\r\nMetadata: true\r\n")) << request;
}

TEST(NoticeWatch, AzuresEventsAreForEverybodyWhereNobodyHasAName) {
  Service service({azure_preempts("set_2"), kNothing, azure_preempts("set_2")});
  Watcher watcher(service.url());
  EXPECT_EQ(watcher.notice().seconds, 30);
}

TEST(NoticeWatch, ANameThatIsNotToldIsAskedForAgain) {
  Service service(
      {azure_preempts("set_2"), answer("503 Busy"), azure_preempts("set_2"), ok("set_2"), azure_preempts("set_2")});
  Watcher watcher(service.url());
  EXPECT_EQ(watcher.notice().seconds, 30);
  EXPECT_EQ(service.callers(), 5);
}

TEST(NoticeWatch, OnesOwn) {
  Service service({answer("204 No Content"), ok(""), ok("{}"), ok(R"({"action": "none"})"), ok(R"({"seconds": 5})")});
  Watcher watcher(service.url());
  EXPECT_EQ(watcher.notice(), (SpotNotice{"in 5 s", 5}));
  EXPECT_EQ(service.callers(), 5);
}

TEST(NoticeWatch, NamesAreResolved) {
  Service service({kNotice});
  auto url = service.url();
  url.host = "localhost";
  if (net::resolve(url.host).or_throw() != "127.0.0.1") GTEST_SKIP() << "localhost is another address here";
  Watcher watcher(url);
  EXPECT_EQ(watcher.notice().seconds, 120);
}

// ---- when it does not work ----

void slam(const Fd& socket) {
  linger at_once{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

Turn says(const std::string& text) {
  return [text](const Fd& socket) { say(socket, text); };
}

/// Every way to fail that needs no time.
std::vector<Turn> failures() {
  return {says("220 mail.example.org ESMTP\r\n"),
          says(""),
          says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRU"),
          slam,
          says(answer("500 Oops", R"({"action": "terminate"})")),
          says(answer("302 Found")),
          says(ok("<html>TRUE</html>")),
          says(ok(R"({"action": "terminate")")),
          says("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nTRUE")};
}

std::vector<Turn> first_failures(std::size_t count) {
  auto all = failures();
  EXPECT_LE(count, all.size());
  all.resize(count);
  return all;
}

void append(std::vector<Turn>& turns, const std::vector<Turn>& more) {
  turns.insert(turns.end(), more.begin(), more.end());
}

TEST(NoticeWatch, FailuresAreNoNoticeAndAreSaidOnce) {
  auto turns = failures();
  append(turns, {says(kNothing), says(kNotice)});
  Service service(turns);
  Watcher watcher(service.url());
  EXPECT_EQ(watcher.notice().seconds, 120);
  EXPECT_EQ(service.callers(), static_cast<int>(failures().size()) + 2);
  auto troubles = watcher.troubles();
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_TRUE(troubles[0].starts_with(service.url().text() + ": HTTP status 500")) << "of the fifth: " << troubles[0];
  EXPECT_FALSE(has(troubles[0], "\n"));
}

TEST(NoticeWatch, WhatIsUnderstoodEndsTheTrouble) {
  auto turns = first_failures(4);  // too few
  append(turns, {says(kNothing)});
  append(turns, first_failures(7));
  append(turns, {says(kNothing)});
  append(turns, first_failures(4));
  append(turns, {says(ok("FALSE"))});
  append(turns, first_failures(5));
  append(turns, {says(kNotice)});
  Service service(turns);
  Watcher watcher(service.url());
  EXPECT_EQ(watcher.notice().seconds, 120);
  EXPECT_EQ(watcher.troubles().size(), 2U);
  EXPECT_EQ(service.callers(), static_cast<int>(turns.size()));
}

TEST(NoticeWatch, WhatComesTooLateDoesNotCount) {
  std::vector<Turn> turns(5, [](const Fd& socket) {
    until_it_hangs_up(socket);
    say(socket, kNotice);
  });
  append(turns, {says(kNothing), says(ok(R"({"seconds": 7})"))});
  Service service(turns);
  Watcher watcher(service.url(), {1ms, 4ms, 500ms});
  EXPECT_EQ(watcher.notice().seconds, 7);
  auto troubles = watcher.troubles();
  ASSERT_FALSE(troubles.empty());
  EXPECT_TRUE(has(troubles[0], "no answer within 500 ms")) << troubles[0];
}

TEST(NoticeWatch, NobodyThereAndThenSomebody) {
  auto nowhere = net::tcp_listen("127.0.0.1", {}).or_throw().endpoint;
  Watcher watcher({nowhere.address, nowhere.port, "/"});
  EXPECT_TRUE(has(watcher.trouble(), "refused")) << watcher.trouble();
  auto listener = net::tcp_listen(nowhere.address, {nowhere.port, nowhere.port}).or_throw();
  net::wait_for(listener.socket.get(), POLLIN);
  auto socket = net::tcp_accept(listener.socket).or_throw();
  ASSERT_TRUE(socket);
  hear_request(*socket);
  say(*socket, kNotice);
  EXPECT_EQ(watcher.notice().seconds, 120);
  EXPECT_EQ(watcher.troubles().size(), 1U);
}

TEST(NoticeWatch, NamesWithoutAnAddressAreSaid) {
  NoticeUrl url{std::string(300, 'x')};  // too long to ask anybody
  Watcher watcher(url);
  EXPECT_TRUE(has(watcher.trouble(), "has no address")) << watcher.trouble();
  watcher.linger();
  EXPECT_EQ(watcher.troubles().size(), 1U);
}

// ---- how often ----

TEST(NoticeWatch, PausesDouble) {
  NoticePace pace;
  const std::pair<int, std::chrono::milliseconds> kPauses[] = {{0, 1s},
                                                               {1, 1s},
                                                               {4, 1s},
                                                               {5, 2s},
                                                               {6, 4s},
                                                               {7, 8s},
                                                               {8, 16s},
                                                               {9, 30s},
                                                               {10, 30s},
                                                               {100, 30s},
                                                               {1'000'000'000, 30s}};
  for (auto [failures, pause] : kPauses) EXPECT_EQ(NoticeWatch::pause_after(failures, pace), pause) << failures;
}

/// Between two turns, in which the service answers at the very end.
std::chrono::milliseconds shortest_pause(const std::string& text, int times, NoticePace pace) {
  std::vector<std::chrono::steady_clock::time_point> turns;
  std::vector<Turn> all(times, [&](const Fd& socket) {
    turns.push_back(std::chrono::steady_clock::now());
    say(socket, text);
  });
  append(all, {[&](const Fd& socket) {
           turns.push_back(std::chrono::steady_clock::now());
           say(socket, kNotice);
         }});
  {
    Service service(all);
    Watcher(service.url(), pace).notice();
  }
  auto shortest = std::chrono::steady_clock::duration::max();
  for (std::size_t i = 1; i < turns.size(); ++i) shortest = std::min(shortest, turns[i] - turns[i - 1]);
  return std::chrono::floor<std::chrono::milliseconds>(shortest);
}

TEST(NoticeWatch, ThereIsAPauseAfterEachAnswer) {
  NoticePace pace{50ms, 100ms, kQuick.patience};
  EXPECT_GE(shortest_pause(kNothing, 4, pace), 50ms);
  EXPECT_GE(shortest_pause(answer("500 Oops"), 6, pace), 50ms);
}

// ---- its end ----

TEST(NoticeWatch, CallbacksMayDestroyIt) {
  for (const auto& turn : {says(kNotice), says(answer("500 Oops"))}) {
    Service service(std::vector<Turn>{turn});
    Watcher watcher(service.url(), kQuick, true);
    while (!watcher.said_anything()) std::this_thread::yield();
    auto callers = service.callers();
    watcher.linger();
    EXPECT_EQ(service.callers(), callers);
  }
  Watcher nowhere(NoticeUrl{std::string(300, 'x')}, kQuick, true);
  nowhere.trouble();
}

TEST(NoticeWatch, NobodyIsCalledBackAfterItsEnd) {
  for (const auto& turn : {says(kNotice), says(answer("500 Oops")), says(kNothing)}) {
    Service service(std::vector<Turn>{turn});
    LoopThread place;
    auto never = [](const auto&) { ADD_FAILURE() << "it is gone"; };
    place.do_there([&] { NoticeWatch(place.loop(), service.url(), never, never, kQuick); });
    for (int i = 0; i < 20; ++i) place.do_there([] { std::this_thread::sleep_for(1ms); });
  }
  Service service({kNothing});
  Watcher pausing(service.url(), {std::chrono::hours(1), std::chrono::hours(1), kQuick.patience});
  while (service.callers() == 0) std::this_thread::yield();
  pausing.destroy();
  EXPECT_FALSE(pausing.said_anything());
}

TEST(NoticeWatch, ItEndsWhileNobodyAnswers) {
  Service service(std::vector<Turn>{until_it_hangs_up});
  Watcher watcher(service.url());
  while (service.callers() == 0) std::this_thread::yield();
  watcher.destroy();
  EXPECT_FALSE(watcher.said_anything());
}

}  // namespace
}  // namespace pliant::cli
