#include "membership/etcd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "membership/etcd_server.h"
#include "net/loop_thread.h"
#include "net/scripted_server.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;
using etcd_test::EtcdServer;
using net::ScriptedServer;

constexpr std::chrono::milliseconds kLong{net::kHangGuard};

/// A store on a loop of its own; calls wait until they are answered.
class Client {
 public:
  /// With as much patience as a busy machine may ask for.
  explicit Client(const std::vector<net::Endpoint>& servers, std::chrono::milliseconds patience = kLong,
                  const std::string& prefix = "/test/") {
    std::vector<net::HttpServer> plain(servers.begin(), servers.end());
    place_.do_there([&] { store_ = std::make_unique<Etcd>(place_.loop(), plain, prefix, patience); });
  }
  /// As programs open it.
  explicit Client(const std::string& url) {
    place_.do_there([&] { store_ = open_store(place_.loop(), url).or_throw(); });
  }
  ~Client() {
    place_.do_there([&] { store_.reset(); });
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Result<Entry> read(const std::string& key) {
    return place_.outcome_of<Result<Entry>>([&](auto done) { store_->read(key, std::move(done)); });
  }
  Result<Attempt> replace(const std::string& key, std::uint64_t revision, const std::string& text) {
    return place_.outcome_of<Result<Attempt>>(
        [&](auto done) { store_->replace(key, revision, text, std::move(done)); });
  }
  Status remove_all(const std::string& prefix) {
    return place_.outcome_of<Status>([&](auto done) { store_->remove_all(prefix, std::move(done)); });
  }

  net::LoopThread place_;
  std::unique_ptr<Store> store_;
};

bool mentions(const Error& error, const std::string& text) { return error.message.find(text) != std::string::npos; }

/// One server for all tests of the suite; each begins with nothing stored.
class EtcdTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (EtcdServer::is_installed()) server_ = std::make_unique<EtcdServer>();
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    if (!server_) GTEST_SKIP() << "no etcd here";
    Client(here()).remove_all("").or_throw();
  }
  static std::vector<net::Endpoint> here() { return {server_->endpoint()}; }

  static inline std::unique_ptr<EtcdServer> server_;
};

TEST_F(EtcdTest, AValueIsReplacedByWhoKnowsWhatItWas) {
  Client client(here());
  EXPECT_EQ(client.read("a").or_throw().revision, 0U);

  auto created = client.replace("a", 0, "one").or_throw();
  EXPECT_TRUE(created.won);
  EXPECT_EQ(created.now.text, "one");
  EXPECT_GT(created.now.revision, 0U);
  auto read = client.read("a").or_throw();
  EXPECT_EQ(read.text, "one");
  EXPECT_EQ(read.revision, created.now.revision);

  auto too_late = client.replace("a", 0, "mine").or_throw();
  EXPECT_FALSE(too_late.won);
  EXPECT_EQ(too_late.now.text, "one");
  EXPECT_EQ(too_late.now.revision, created.now.revision);

  client.replace("other", 0, "moves the revision of the whole store").or_throw();
  auto replaced = client.replace("a", created.now.revision, "two").or_throw();
  EXPECT_TRUE(replaced.won);
  EXPECT_GT(replaced.now.revision, created.now.revision);
  EXPECT_EQ(client.read("a").or_throw().revision, replaced.now.revision);

  auto stale = client.replace("a", created.now.revision, "three").or_throw();
  EXPECT_FALSE(stale.won);
  EXPECT_EQ(stale.now.text, "two");
  EXPECT_EQ(stale.now.revision, replaced.now.revision);
  EXPECT_EQ(client.read("a").or_throw().text, "two");

  auto never_was = client.replace("b", 7, "x").or_throw();
  EXPECT_FALSE(never_was.won);
  EXPECT_EQ(never_was.now.revision, 0U);
}

TEST_F(EtcdTest, AnyBytesUpToTheLimit) {
  Client client(here());
  const std::string kKey("bytes \xff/\0 too", 13);
  std::string longest(Store::kLongestText, '\0');
  for (std::size_t i = 0; i < longest.size(); ++i) longest[i] = static_cast<char>(i * 31 + i / 256);
  for (const auto& text : {std::string(), std::string("\0\xff\"\\\n", 5), longest}) {
    auto before = client.read(kKey).or_throw();
    ASSERT_TRUE(client.replace(kKey, before.revision, text).or_throw().won);
    auto after = client.read(kKey).or_throw();
    EXPECT_TRUE(after.text == text) << text.size() << " bytes";
    EXPECT_GT(after.revision, before.revision);
  }
  auto too_long = client.replace("long", 0, longest + "x");
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, Code::invalid);
  EXPECT_EQ(client.read("long").or_throw().revision, 0U);
}

TEST_F(EtcdTest, RemovesWhatBeginsSo) {
  Client client(here());
  for (std::string key : {"job", "job/a", "job/b", "jobs", "joc", "i"}) client.replace(key, 0, key).or_throw();
  Client elsewhere(here(), kLong, "/test2/");
  elsewhere.replace("job/a", 0, "not ours").or_throw();

  client.remove_all("job/").or_throw();
  for (std::string key : {"job/a", "job/b"}) EXPECT_EQ(client.read(key).or_throw().revision, 0U) << key;
  for (std::string key : {"job", "jobs", "joc", "i"}) EXPECT_EQ(client.read(key).or_throw().text, key);
  EXPECT_TRUE(client.replace("job/a", 0, "again").or_throw().won);
  client.remove_all("").or_throw();
  for (std::string key : {"job", "job/a", "jobs", "joc", "i"}) EXPECT_EQ(client.read(key).or_throw().revision, 0U);
  EXPECT_EQ(elsewhere.read("job/a").or_throw().text, "not ours");
  elsewhere.remove_all("").or_throw();
}

TEST_F(EtcdTest, OfTwoThatRaceOneWins) {
  std::array<std::unique_ptr<Client>, 2> clients;
  for (auto& client : clients) client = std::make_unique<Client>(here());
  std::uint64_t revision = 0;
  for (int race = 0; race < 100; ++race) {
    auto text_of = [&](int racer) { return std::to_string(race) + (racer == 0 ? " left" : " right"); };
    auto run = [&](int racer) { return clients[racer]->replace("race", revision, text_of(racer)).or_throw(); };
    int first = race % 2;
    auto other = std::async(std::launch::async, [&] { return run(1 - first); });
    std::array<Attempt, 2> attempts;
    attempts[first] = run(first);
    attempts[1 - first] = other.get();
    ASSERT_NE(attempts[0].won, attempts[1].won);
    int winner = attempts[0].won ? 0 : 1;
    for (const auto& attempt : attempts) {
      EXPECT_EQ(attempt.now.text, text_of(winner));
      EXPECT_EQ(attempt.now.revision, attempts[winner].now.revision);
    }
    ASSERT_GT(attempts[winner].now.revision, revision);
    revision = attempts[winner].now.revision;
  }
  EXPECT_EQ(clients[0]->read("race").or_throw().revision, revision);
}

TEST_F(EtcdTest, ManyAtOnceAreAllAnswered) {
  net::LoopThread place;
  std::unique_ptr<Store> store;
  auto good = place.outcome_of<int>([&](auto done) {
    store = std::make_unique<Etcd>(place.loop(), std::vector<net::HttpServer>{here()[0]}, "/test/", kLong);
    auto left = std::make_shared<int>(60);
    auto won = std::make_shared<int>(0);
    for (int i = 0; i < 60; ++i)
      store->replace("key" + std::to_string(i % 30), 0, "x", [=](const Result<Attempt>& attempt) {
        *won += attempt.ok() && attempt.value().won;
        if (--*left == 0) done(*won);
      });
  });
  EXPECT_EQ(good, 30);
  place.do_there([&] { store.reset(); });
}

TEST_F(EtcdTest, AKilledServerIsAnErrorAndARestartedOneKnowsEverything) {
  Client client(server_->url("/test"));
  Client patient(here());
  auto stored = patient.replace("kept", 0, "text").or_throw();
  server_->kill();
  auto read = client.read("kept");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::peer_lost);
  EXPECT_TRUE(mentions(read.error(), server_->endpoint().text())) << read.error().message;
  EXPECT_EQ(client.replace("kept", stored.now.revision, "x").error().code, Code::peer_lost);
  EXPECT_EQ(client.remove_all("").error().code, Code::peer_lost);

  server_->restart();
  auto again = patient.read("kept").or_throw();
  EXPECT_EQ(again.text, "text");
  EXPECT_EQ(again.revision, stored.now.revision);
  EXPECT_TRUE(patient.replace("kept", again.revision, "more").or_throw().won);
}

TEST_F(EtcdTest, AFrozenServerIsAnError) {
  Client client(server_->url("/test"));
  Client patient(here());
  auto stored = patient.replace("kept", 0, "text").or_throw();
  server_->freeze();
  auto read = client.read("kept");
  auto replaced = client.replace("kept", stored.now.revision, "from the ice");
  server_->go_on();
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::peer_lost);
  EXPECT_TRUE(mentions(read.error(), "no answer within 500 ms")) << read.error().message;
  ASSERT_FALSE(replaced.ok());
  EXPECT_EQ(replaced.error().code, Code::peer_lost);
  // Whether the server still did what it was asked to is its own affair: whoever reads knows.
  auto now = patient.read("kept").or_throw();
  EXPECT_TRUE(now.text == "text" || now.text == "from the ice") << now.text;
}

// ---- several servers ----

TEST_F(EtcdTest, TheNextOneIsAskedIfOneIsDead) {
  auto dead = net::tcp_listen("127.0.0.1", {}).or_throw().endpoint;
  Client client({dead, server_->endpoint()});
  EXPECT_TRUE(client.replace("a", 0, "text").or_throw().won);
  // Again from the beginning: that nobody is there leaves no doubt about who was faster.
  auto lost = Client({dead, server_->endpoint()}).replace("a", 0, "other").or_throw();
  EXPECT_FALSE(lost.won);
  EXPECT_EQ(lost.now.text, "text");
}

TEST_F(EtcdTest, TheNextOneIsAskedIfOneIsSilent) {
  ScriptedServer silent([](const Fd& socket) { net::until_it_hangs_up(socket); });
  Client client({silent.endpoint(), server_->endpoint()}, 1s);
  while (!client.read("a").ok()) continue;  // a second may be too short for a very busy machine
  EXPECT_GE(silent.callers(), 1);
}

TEST_F(EtcdTest, TheOneThatAnsweredIsRemembered) {
  ScriptedServer garbage(ScriptedServer::answers("SSH-2.0-OpenSSH_9.2\r\n"));
  ScriptedServer no_leader(
      ScriptedServer::answers_json("503 Service Unavailable", R"({"error":"etcdserver: no leader","code":14})"));
  Client client({garbage.endpoint(), no_leader.endpoint(), server_->endpoint()});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.read("a").or_throw().revision, 0U);
  EXPECT_TRUE(client.replace("a", 0, "text").or_throw().won);
  EXPECT_EQ(garbage.callers(), 1);
  EXPECT_EQ(no_leader.callers(), 1);
}

/// Asks the real server, and keeps its answer to itself.
ScriptedServer::Script swallow(const net::Endpoint& real) {
  return [real](const Fd& socket) {
    auto request = net::hear_request(socket);
    auto onward = net::tcp_connect(real).or_throw();
    net::wait_for(onward.get(), POLLOUT);
    net::say(onward, request);
    net::until_it_hangs_up(onward);
  };
}

TEST_F(EtcdTest, WhoMayHaveWonAlreadyIsNotToldThatItLost) {
  ScriptedServer swallows(swallow(server_->endpoint()));
  auto attempt = Client({swallows.endpoint(), server_->endpoint()}).replace("a", 0, "ours");
  ASSERT_FALSE(attempt.ok()) << "it was stored by the first attempt, and then refused";
  EXPECT_EQ(attempt.error().code, Code::peer_lost);
  EXPECT_TRUE(mentions(attempt.error(), "may have been stored already")) << attempt.error().message;
  EXPECT_EQ(Client(here()).read("a").or_throw().text, "ours");
}

// ---- servers that are none ----

/// All errors of one server that answers everything like this.
std::vector<Error> errors_of(const ScriptedServer::Script& script, std::chrono::milliseconds patience = kLong) {
  ScriptedServer server(script);
  Client client({server.endpoint()}, patience);
  auto read = client.read("a");
  auto replaced = client.replace("a", 0, "x");
  auto removed = client.remove_all("");
  EXPECT_FALSE(read.ok() || replaced.ok() || removed.ok());
  if (read.ok() || replaced.ok() || removed.ok()) return {};
  return {read.error(), replaced.error(), removed.error()};
}

TEST(EtcdNonsense, IsRefused) {
  using Server = ScriptedServer;
  for (const auto& script : {Server::answers("220 mail.example.org ESMTP\r\n"), Server::answers_json("200 OK", "{}"),
                             Server::answers_json("200 OK", "hello"), Server::answers_json("404 Not Found", "")})
    for (const auto& error : errors_of(script)) EXPECT_EQ(error.code, Code::protocol) << error.message;
}

TEST(EtcdNonsense, TooMuchIsRefused) {
  auto endless = [](const Fd& socket) {
    net::hear_request(socket);
    net::say(socket, "HTTP/1.1 200 OK\r\n\r\n");
    while (net::say(socket, std::string(65536, '['))) continue;
  };
  for (const auto& error : errors_of(endless)) EXPECT_EQ(error.code, Code::protocol) << error.message;
}

TEST(EtcdNonsense, SlownessEndsWithPatience) {
  auto drips = [](const Fd& socket) {
    net::hear_request(socket);
    net::say(socket, "HTTP/1.1 200 OK\r\n\r\n");
    while (net::say(socket, "[")) std::this_thread::sleep_for(1ms);
  };
  for (const auto& error : errors_of(drips, 50ms)) EXPECT_EQ(error.code, Code::peer_lost) << error.message;
}

TEST(EtcdNonsense, WhatTheServerSaysIsToldOn) {
  ScriptedServer first(ScriptedServer::answers_json("503 Service Unavailable", R"({"error":"no leader","code":14})"));
  ScriptedServer second(ScriptedServer::answers("HTTP/1.1 200 OK\r\n"));
  auto read = Client({first.endpoint(), second.endpoint()}).read("a");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::peer_lost);
  EXPECT_TRUE(mentions(read.error(), first.endpoint().text() + ": no leader; ")) << read.error().message;
  EXPECT_TRUE(mentions(read.error(), second.endpoint().text() + ": it hung up")) << read.error().message;

  ScriptedServer full(ScriptedServer::answers_json("429 Too Many Requests", R"({"error":"no space","code":8})"));
  auto refused = Client({full.endpoint(), first.endpoint()}).read("a");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::io);
  EXPECT_EQ(refused.error().message, full.endpoint().text() + ": no space");
}

// ---- users ----

TEST(EtcdLogin, OneTokenServesAllWhoWaitForIt) {
  std::atomic<int> logins = 0, questions = 0;
  ScriptedServer server([&](const Fd& socket) {
    auto request = net::hear_request(socket);
    bool login = request.find("/v3/auth/authenticate") != std::string::npos;
    bool known = request.find("Authorization: the-token\r\n") != std::string::npos;
    ++(login ? logins : questions);
    std::string body = login ? R"({"header":{"revision":"1"},"token":"the-token"})" : R"({"header":{"revision":"1"}})";
    if (login || known) net::say(socket, "HTTP/1.1 200 OK\r\n\r\n" + body);
  });
  net::LoopThread place;
  std::unique_ptr<Store> store;
  auto good = place.outcome_of<int>([&](auto done) {
    store = std::make_unique<Etcd>(place.loop(), std::vector<net::HttpServer>{server.endpoint()}, "/test/", kLong,
                                   EtcdLogin{"me", "secret"});
    auto left = std::make_shared<int>(5), fine = std::make_shared<int>(0);
    for (int i = 0; i < 5; ++i)
      store->read("key", [=](const Result<Entry>& entry) {
        *fine += entry.ok();
        if (--*left == 0) done(*fine);
      });
  });
  EXPECT_EQ(good, 5);
  EXPECT_EQ(logins, 1);
  EXPECT_EQ(questions, 5);
  place.do_there([&] { store.reset(); });
}

// ---- lifetimes ----

TEST(EtcdLifetime, NobodyIsCalledBackAfterItsEnd) {
  ScriptedServer server(ScriptedServer::answers_json("200 OK", R"({"header":{"revision":"1"}})"));
  net::LoopThread place;
  place.do_there([&] {
    Etcd store(place.loop(), {net::HttpServer(server.endpoint())}, "/test/");
    store.read("a", [](const auto&) { ADD_FAILURE() << "it is gone"; });
    store.replace("a", 0, std::string(Store::kLongestText + 1, 'x'),
                  [](const auto&) { ADD_FAILURE() << "it is gone"; });
  });
  for (int i = 0; i < 10; ++i) place.do_there([] { std::this_thread::sleep_for(1ms); });
}

TEST(EtcdLifetime, ItMayBeDestroyedWhileItCallsBack) {
  ScriptedServer server(ScriptedServer::answers_json("200 OK", R"({"header":{"revision":"1"}})"));
  auto dead = net::tcp_listen("127.0.0.1", {}).or_throw().endpoint;
  for (const auto& to : {server.endpoint(), dead}) {
    net::LoopThread place;
    std::unique_ptr<Store> store;
    auto good = place.outcome_of<bool>([&](auto done) {
      store = std::make_unique<Etcd>(place.loop(), std::vector<net::HttpServer>{to}, "/test/", kLong);
      auto end = [&store, done,
                  text = std::string("what is captured outlives the store until it returns")](auto result) {
        store.reset();
        done(result.ok() && !text.empty());
      };
      store->read("a", end);
    });
    EXPECT_EQ(good, to == server.endpoint());
    place.do_there([] {});  // the callback has returned
  }
}

}  // namespace
}  // namespace pliant::membership
