// A store whose servers speak TLS, ask for certificates and for passwords: a real etcd.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>

#include "membership/etcd_address.h"
#include "membership/etcd_server.h"
#include "membership/store.h"
#include "net/certificates.h"
#include "net/http.h"
#include "net/loop_thread.h"
#include "net/scripted_server.h"
#include "net/tcp_pair.h"

namespace pliant::membership {
namespace {

using etcd_test::EtcdServer;
using net::Certificates;

/// What a store says at such an address.
class Client {
 public:
  explicit Client(const EtcdAddress& address) {
    place_.do_there([&] {
      auto opened = open_store(place_.loop(), etcd_url(address));
      if (opened.ok())
        store_ = std::move(opened).value();
      else
        why_not_ = opened.error();
    });
  }
  ~Client() {
    place_.do_there([&] { store_.reset(); });
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// 500 ms may be too short for a very busy machine: only then it is asked again.
  Result<Entry> read(const std::string& key) {
    if (!store_) return why_not_;
    for (;;) {
      auto got = place_.outcome_of<Result<Entry>>([&](auto done) { store_->read(key, std::move(done)); });
      if (got.ok() || got.error().message.find("no answer within") == std::string::npos) return got;
    }
  }
  Result<Attempt> replace(const std::string& key, std::uint64_t revision, const std::string& text) {
    return place_.outcome_of<Result<Attempt>>(
        [&](auto done) { store_->replace(key, revision, text, std::move(done)); });
  }

 private:
  net::LoopThread place_;
  std::unique_ptr<Store> store_;
  Error why_not_;
};

void expect_refused(const Result<Entry>& got, Code code, const std::string& words) {
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, code) << got.error().message;
  EXPECT_NE(got.error().message.find(words), std::string::npos) << got.error().message;
  EXPECT_EQ(got.error().message.find('\n'), std::string::npos);
}

class EtcdTls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!EtcdServer::is_installed() || !Certificates::can_be_made()) return;
    ours_ = std::make_unique<Certificates>();
    others_ = std::make_unique<Certificates>();
    for (auto* made : {ours_.get(), others_.get()}) {
      made->issue("server", "IP:127.0.0.1,DNS:localhost");
      made->issue("client", "DNS:client");
    }
    server_ = std::make_unique<EtcdServer>("127.0.0.1", tls_with("server", false));
  }
  static void TearDownTestSuite() {
    server_.reset();
    ours_.reset();
    others_.reset();
  }
  void SetUp() override {
    if (!server_) GTEST_SKIP() << "no etcd or no openssl here";
  }
  static EtcdServer::Tls tls_with(const std::string& name, bool asks_clients) {
    return {ours_->ca(), ours_->cert(name), ours_->key(name), asks_clients};
  }
  static EtcdAddress address_of(const EtcdServer& server) {
    EtcdAddress address{{{"127.0.0.1", server.endpoint().port}}, "/jobs/"};
    address.tls = true;
    address.ca = ours_->ca();
    return address;
  }
  static void expect_usable(const EtcdAddress& address) {
    Client client(address);
    auto before = client.read("k").or_throw();
    auto attempt = client.replace("k", before.revision, std::string(100'000, 'x')).or_throw();
    EXPECT_TRUE(attempt.won);
    EXPECT_EQ(client.read("k").or_throw().text, std::string(100'000, 'x'));
  }
  static std::string password_file(const std::string& text, int mode = 0600) {
    auto file = ours_->ca() + ".password";
    std::ofstream(file) << text;
    chmod(file.c_str(), static_cast<mode_t>(mode));
    return file;
  }

  static inline std::unique_ptr<Certificates> ours_, others_;
  static inline std::unique_ptr<EtcdServer> server_;
};

TEST_F(EtcdTls, AServerThatProvesItsNameIsUsed) {
  auto address = address_of(*server_);
  expect_usable(address);
  address.servers[0].host = "localhost";
  expect_usable(address);
}

TEST_F(EtcdTls, AServerOfAnotherCaIsRefused) {
  auto address = address_of(*server_);
  address.ca = others_->ca();
  expect_refused(Client(address).read("k"), Code::refused, "does not prove that it is '127.0.0.1'");
  address.ca.clear();  // the system's
  expect_refused(Client(address).read("k"), Code::refused, "does not prove that it is '127.0.0.1'");
}

/// The CA is right, but the certificate is somebody else's.
TEST_F(EtcdTls, AServerOfAnotherNameIsRefused) {
  net::LoopThread place;
  auto context = net::TlsContext::open({ours_->ca()}).or_throw();
  for (const std::string name : {"etcd.example.org", "127.0.0.2", "localhost.example.org", "::1"}) {
    std::unique_ptr<net::HttpCall> call;
    auto told = place.outcome_of<Result<net::HttpAnswer>>([&](auto done) {
      call = std::make_unique<net::HttpCall>(place.loop(), net::HttpServer(server_->endpoint(), name, context),
                                             net::HttpRequest{.path = "/health"}, done,
                                             std::chrono::milliseconds(net::kHangGuard));
    });
    place.do_there([&] { call.reset(); });
    ASSERT_FALSE(told.ok()) << name;
    EXPECT_EQ(told.error().code, Code::refused) << told.error().message;
    EXPECT_NE(told.error().message.find("does not prove that it is '" + name), std::string::npos)
        << told.error().message;
  }
}

TEST_F(EtcdTls, WhoDoesNotSpeakTlsIsRefused) {
  EtcdServer plain;
  auto address = address_of(*server_);
  address.servers[0].port = plain.endpoint().port;
  expect_refused(Client(address).read("k"), Code::peer_lost, "perhaps it does not speak TLS");
  net::ScriptedServer mail([](const Fd& socket) {
    net::say(socket, "220 mail.example.org ESMTP\r\n");
    net::until_it_hangs_up(socket);
  });
  address.servers[0].port = mail.endpoint().port;
  expect_refused(Client(address).read("k"), Code::protocol, "TLS fails: ");
}

TEST_F(EtcdTls, AClientNeedsTheCertificateThatIsAskedFor) {
  EtcdServer server("127.0.0.1", tls_with("server", true));
  auto address = address_of(server);
  expect_refused(Client(address).read("k"), Code::refused, "it wants a client's certificate that it trusts");
  address.cert = others_->cert("client");
  address.key = others_->key("client");
  expect_refused(Client(address).read("k"), Code::refused, "it wants a client's certificate that it trusts");
  address.cert = ours_->cert("client");
  address.key = ours_->key("client");
  expect_usable(address);
}

TEST_F(EtcdTls, FilesThatAreOfNoUseAreNamed) {
  auto address = address_of(*server_);
  address.ca = "/nowhere/ca.pem";
  expect_refused(Client(address).read("k"), Code::not_found, "/nowhere/ca.pem");
  address.ca = ours_->key("client");
  expect_refused(Client(address).read("k"), Code::invalid, "holds no certificate");
  address.ca = ours_->ca();
  address.cert = ours_->cert("client");
  address.key = ours_->key("server");
  expect_refused(Client(address).read("k"), Code::invalid, "is not the key of");
  address.key = ours_->key("client");
  chmod(address.key.c_str(), 0644);
  expect_refused(Client(address).read("k"), Code::refused, "is open to other users");
  chmod(address.key.c_str(), 0600);
}

TEST_F(EtcdTls, APasswordIsAskedForAndATokenIsRenewed) {
  EtcdServer server("127.0.0.1", tls_with("server", false));
  server.ask_for_passwords("right");
  auto address = address_of(server);
  expect_refused(Client(address).read("k"), Code::io, "user name is empty");
  address.user = "job";
  address.password_file = password_file("wrong\n");
  expect_refused(Client(address).read("k"), Code::io, "user 'job' is not let in: ");
  password_file("right\n", 0644);
  expect_refused(Client(address).read("k"), Code::refused, "is open to other users");
  password_file("right\n");
  expect_usable(address);

  Client client(address);
  auto stored = client.read("k").or_throw();
  ASSERT_GT(stored.revision, 0U);
  server.kill();
  server.restart();  // it has forgotten the token
  EXPECT_EQ(client.read("k").or_throw().revision, stored.revision);

  address.prefix = "/elsewhere/";
  expect_refused(Client(address).read("k"), Code::io, "permission denied");
}

}  // namespace
}  // namespace pliant::membership
