#include "net/http.h"

#include <gtest/gtest.h>

#include "net/loop_thread.h"
#include "net/scripted_server.h"

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong{kHangGuard};
constexpr const char* kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

struct End {
  Result<HttpAnswer> answer;
  bool sent = false;
};

/// One call, from its beginning to its end.
End ask(const Endpoint& to, const HttpRequest& request = {}, std::chrono::milliseconds patience = kLong,
        HttpLimits limits = {}) {
  LoopThread place;
  std::unique_ptr<HttpCall> call;
  auto answer = place.outcome_of<Result<HttpAnswer>>(
      [&](auto done) { call = std::make_unique<HttpCall>(place.loop(), to, request, done, patience, limits); });
  return place.do_there([&] {
    End end{std::move(answer), call->sent()};
    call.reset();
    return end;
  });
}

Endpoint nowhere() { return tcp_listen("127.0.0.1", {}).or_throw().endpoint; }

TEST(HttpCall, AnswersOfEveryKind) {
  for (std::string text :
       {kHello, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello"}) {
    ScriptedServer server(ScriptedServer::answers(text));
    auto end = ask(server.endpoint());
    EXPECT_EQ(std::move(end.answer).or_throw(), (HttpAnswer{200, "hello"}));
    EXPECT_TRUE(end.sent);
  }
  ScriptedServer refuses(ScriptedServer::answers_json("503 Service Unavailable", "{}"));
  EXPECT_EQ(ask(refuses.endpoint()).answer.or_throw(), (HttpAnswer{503, "{}"}));
}

TEST(HttpCall, TheAnswerEndsTheWaitingNotTheConnection) {
  ScriptedServer server([](const Fd& socket) {
    hear_request(socket);
    say(socket, kHello);
    until_it_hangs_up(socket);  // not the first to do so
  });
  EXPECT_TRUE(ask(server.endpoint()).answer.ok());
}

/// What a server hears of a request.
struct Heard {
  std::string host;
  std::string text;
};

Heard heard_of(const HttpRequest& request) {
  std::promise<std::string> text;
  ScriptedServer server([&](const Fd& socket) {
    text.set_value(hear_request(socket));
    say(socket, kHello);
  });
  EXPECT_TRUE(ask(server.endpoint(), request).answer.ok());
  return {server.endpoint().text(), text.get_future().get()};
}

TEST(HttpCall, RequestsAreWrittenLikeThis) {
  auto get = heard_of({.path = "/health?x=1", .headers = {{"Metadata-Flavor", "any"}}});
  EXPECT_EQ(get.text,
            "GET /health?x=1 HTTP/1.1\r\nHost: " + get.host + "\r\nConnection: close\r\nMetadata-Flavor: any\r\n\r\n");
  auto post = heard_of({"POST", "/", "{}", {{"Content-Type", "application/json"}}});
  EXPECT_EQ(post.text, "POST / HTTP/1.1\r\nHost: " + post.host +
                           "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_NE(heard_of({.method = "PUT"}).text.find("Content-Length: 0\r\n"), std::string::npos);
}

TEST(HttpCall, LongRequestsArriveWhole) {
  std::string body(8 << 20, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7 + i / 251);
  EXPECT_TRUE(heard_of({"POST", "/", body}).text.ends_with(body));
}

TEST(HttpCall, AnAnswerMayComeBeforeTheEndOfTheQuestion) {
  ScriptedServer server([](const Fd& socket) {
    say(socket, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    wait_for(socket.get(), POLLRDHUP);  // reads nothing at all
  });
  auto end = ask(server.endpoint(), {"POST", "/", std::string(64 << 20, 'x')});
  EXPECT_EQ(std::move(end.answer).or_throw().status, 413);
  EXPECT_FALSE(end.sent);
}

TEST(HttpCall, ByteByByteIsAnAnswerToo) {
  ScriptedServer server([](const Fd& socket) {
    hear_request(socket);
    for (const char* c = kHello; *c; ++c) say(socket, {c, 1});
  });
  EXPECT_EQ(ask(server.endpoint()).answer.or_throw().body, "hello");
}

TEST(HttpCall, PatienceIsForAllOfIt) {
  ScriptedServer drips([](const Fd& socket) {
    hear_request(socket);
    say(socket, "HTTP/1.1 200 OK\r\n\r\n");
    while (say(socket, ".")) std::this_thread::sleep_for(1ms);
  });
  auto end = ask(drips.endpoint(), {}, 50ms);
  ASSERT_FALSE(end.answer.ok());
  EXPECT_EQ(end.answer.error().code, Code::peer_lost);
  EXPECT_NE(end.answer.error().message.find("no answer within 50 ms"), std::string::npos);
  EXPECT_TRUE(end.sent);
}

TEST(HttpCall, NobodyThereIsALoss) {
  auto to = nowhere();
  auto end = ask(to);
  ASSERT_FALSE(end.answer.ok());
  EXPECT_EQ(end.answer.error().code, Code::peer_lost);
  EXPECT_TRUE(end.answer.error().message.starts_with(to.text() + ": ")) << end.answer.error().message;
  EXPECT_FALSE(end.sent);
}

TEST(HttpCall, CutConnectionsAreLosses) {
  for (std::string text : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"}) {
    ScriptedServer server(ScriptedServer::answers(text));
    EXPECT_EQ(ask(server.endpoint()).answer.error().code, Code::peer_lost) << text;
  }
  ScriptedServer resets([](const Fd& socket) {
    hear_request(socket);
    linger at_once{1, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  });
  EXPECT_EQ(ask(resets.endpoint()).answer.error().code, Code::peer_lost);
}

TEST(HttpCall, NonsenseAndTooMuchEndTheCall) {
  ScriptedServer mail(ScriptedServer::answers("220 mail.example.org ESMTP\r\n"));
  EXPECT_EQ(ask(mail.endpoint()).answer.error().code, Code::protocol);
  ScriptedServer endless([](const Fd& socket) {
    hear_request(socket);
    say(socket, "HTTP/1.1 200 OK\r\n\r\n");
    while (say(socket, std::string(4096, 'x'))) continue;
  });
  EXPECT_EQ(ask(endless.endpoint()).answer.error().code, Code::protocol);
  ScriptedServer hello(ScriptedServer::answers(kHello));
  EXPECT_EQ(ask(hello.endpoint(), {}, kLong, {.body = 4}).answer.error().code, Code::protocol);
}

TEST(HttpCall, WhatCannotBeWrittenIsNotSent) {
  ScriptedServer server(ScriptedServer::answers(kHello));
  for (const HttpRequest& request : std::vector<HttpRequest>{{.method = ""},
                                                             {.method = "get"},
                                                             {.method = "HEAD"},
                                                             {.method = "GET / HTTP/1.1\r\n"},
                                                             {.path = ""},
                                                             {.path = "x"},
                                                             {.path = "/ /"},
                                                             {.path = "/\r\nX: y"},
                                                             {.headers = {{"", "x"}}},
                                                             {.headers = {{"X: y\r\nZ", "x"}}},
                                                             {.headers = {{"X", "y\r\nZ: z"}}}}) {
    auto end = ask(server.endpoint(), request);
    ASSERT_FALSE(end.answer.ok()) << request.method << request.path;
    EXPECT_EQ(end.answer.error().code, Code::invalid);
    EXPECT_FALSE(end.sent);
  }
  EXPECT_EQ(ask({"nowhere", 1}).answer.error().code, Code::invalid);
  EXPECT_EQ(server.callers(), 0);
}

TEST(HttpCall, ItMayBeDestroyedWhileItCallsBack) {
  ScriptedServer server(ScriptedServer::answers(kHello));
  for (const auto& to : {server.endpoint(), nowhere(), Endpoint{"nowhere", 1}}) {
    LoopThread place;
    std::unique_ptr<HttpCall> call;
    auto good = place.outcome_of<bool>([&](auto done) {
      call = std::make_unique<HttpCall>(
          place.loop(), to, HttpRequest(),
          [&call, done, text = std::string("what is captured outlives the call until it returns")](const auto& answer) {
            call.reset();
            done(answer.ok() && !text.empty());
          },
          kLong);
    });
    EXPECT_EQ(good, to == server.endpoint());
    place.do_there([] {});  // the callback has returned
  }
}

TEST(HttpCall, NobodyIsCalledBackAfterItsEnd) {
  ScriptedServer server(ScriptedServer::answers(kHello));
  LoopThread place;
  auto never = [](const Result<HttpAnswer>&) { ADD_FAILURE() << "it is gone"; };
  place.do_there([&] {
    HttpCall good(place.loop(), server.endpoint(), {}, never);
    HttpCall bad(place.loop(), Endpoint{"nowhere", 1}, {}, never);
    HttpCall late(place.loop(), server.endpoint(), {}, never, 1ms);
  });
  for (int i = 0; i < 10; ++i) place.do_there([] { std::this_thread::sleep_for(1ms); });
}

TEST(HttpCall, Ipv6) {
  auto probe = tcp_listen("::1", {});
  if (!probe.ok()) GTEST_SKIP() << "no IPv6 here: " << probe.error().message;
  ScriptedServer server(ScriptedServer::answers(kHello), "::1");
  EXPECT_TRUE(ask(server.endpoint()).answer.ok());
}

}  // namespace
}  // namespace pliant::net
