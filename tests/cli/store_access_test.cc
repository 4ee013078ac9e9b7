// A store that speaks TLS, asks for a client's certificate and for a password: what the flags of `pliant run` do.
#include "cli/stores.h"
#include "net/certificates.h"

namespace pliant::cli_test {
namespace {

class StoreAccess : public Stores {
 protected:
  void SetUp() override {
    Stores::SetUp();
    if (IsSkipped()) return;
    if (!net::Certificates::can_be_made()) GTEST_SKIP() << "openssl is not installed";
    certificates_.emplace();
    others_.emplace();
    certificates_->issue("server", "IP:127.0.0.1");
    certificates_->issue("client", "DNS:client");
    std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec \"$@\"\n";
    chmod(path("here").c_str(), 0700);
    write_password("right");
    EtcdServer::Tls tls{certificates_->ca(), certificates_->cert("server"), certificates_->key("server"), true};
    etcd_.emplace("127.0.0.1", tls);
  }
  void write_password(const std::string& password) const {
    std::ofstream(path("password")) << password << "\n";
    chmod(path("password").c_str(), 0600);
  }
  /// Flags that are right; some may be replaced.
  using Flags = std::map<std::string, std::string>;
  Flags right() const {
    return {{"--store", etcd_->url("/jobs")},
            {"--store-ca", certificates_->ca()},
            {"--store-cert", certificates_->cert("client")},
            {"--store-key", certificates_->key("client")},
            {"--store-user", "job"},
            {"--store-password-file", path("password")}};
  }
  Command start_with(const Flags& flags) {
    Words words = {"--name",    "far",       "-H",       "a:1,b:1",      "--via", path("here") + " {host}",
                   "--address", "127.0.0.1", "--record", path("records")};
    for (const auto& [name, value] : flags)
      if (!value.empty()) words.insert(words.end(), {name, value});
    return start_workers(words, script(path("enough")));
  }
  /// It ends at once, with one line that says why.
  void expect_refusal(const std::string& flag, const std::string& value, const std::string& words) {
    auto flags = right();
    flags[flag] = value;
    if (flag == "--store-cert" && value.empty()) flags["--store-key"] = "";
    auto seen = start_with(flags).wait();
    EXPECT_NE(seen.status, 0);
    EXPECT_SAYS(seen.err, words);
    EXPECT_EQ(lines_in(seen.err), 1U) << seen.err;
  }
  std::optional<net::Certificates> certificates_, others_;
  std::optional<EtcdServer> etcd_;
};

TEST_F(StoreAccess, AJobGetsInWithCertificateAndPassword) {
  etcd_->ask_for_passwords("right");
  auto job = start_with(right());
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto first = coordinator_of("far");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != first; })) << job.err();
  etcd_->kill();
  etcd_->restart();  // tokens are forgotten
  kill(worker_of("far", 1), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {0, 66})) << job.err();  // a successor skips 64 numbers
  EXPECT_EQ(run({"resize", "far", "1"}).out.find("the store"), std::string::npos);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreAccess, WhoeverIsNotLetInSaysWhyAtOnce) {
  expect_refusal("--store-ca", others_->ca(), "does not prove that it is '127.0.0.1'");
  expect_refusal("--store-ca", "/nowhere", "/nowhere");
  expect_refusal("--store", fmt::format("etcds://localhost:{}", etcd_->endpoint().port),
                 "does not prove that it is 'localhost'");
  expect_refusal("--store-cert", "", "it wants a client's certificate that it trusts");
  expect_refusal("--store-key", "", "--store-cert and --store-key belong together");
  expect_refusal("--store-user", "", "--store-user and --store-password-file belong together");
  expect_refusal("--store", fmt::format("etcd://127.0.0.1:{}", etcd_->endpoint().port), "need a store with TLS");
  expect_refusal("--store-user", "job", "user 'job' is not let in: ");  // the server has no users
  etcd_->ask_for_passwords("right");
  write_password("wrong");
  expect_refusal("--store-user", "job", "user 'job' is not let in: ");
  chmod(path("password").c_str(), 0644);
  expect_refusal("--store-user", "job", "is open to other users");
}

}  // namespace
}  // namespace pliant::cli_test
