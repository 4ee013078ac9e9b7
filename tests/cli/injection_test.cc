// Somebody who does not know the job's secret sends segments in the name of its processes into their connections.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/cable.h"
#include "cli/harness.h"
#include "cli/injector.h"
#include "wire/messages.h"

namespace pliant::cli_test {
namespace {

using Bytes = Injector::Bytes;

constexpr std::size_t kConnections = 40;  // more than such a job makes if none of them is ended

class Injection : public CliTest {
 protected:
  /// As it would stand on a connection that nothing protects: its length, then the message.
  static Bytes unprotected(const wire::Message& message) {
    auto packet = wire::encode(message);
    auto length = static_cast<std::uint32_t>(packet.size());
    Bytes bytes(sizeof(length));
    std::memcpy(bytes.data(), &length, sizeof(length));
    bytes.insert(bytes.end(), packet.begin(), packet.end());
    return bytes;
  }
  /// What an agent is to run, if it believes it.
  wire::Charter order() const {
    nlohmann::json what{{"program", "/bin/touch"}, {"argv", {"touch", path("owned")}}, {"name", "far"}};
    return {what.dump()};
  }
  Cable cable_;
};

TEST_F(Injection, NothingThatIsInsertedIsBelievedAndTheJobGoesOn) {
  if (!cable_.works()) GTEST_SKIP() << "no network namespaces can be made here";
  std::vector<Bytes> texts = {unprotected(order()), unprotected(wire::Stop{}), Bytes(100, 0x17)};
  Bytes record = {23, 3, 3, 0, 53};  // as if TLS went on
  record.resize(58, 1);
  texts.push_back(record);
  // At once; behind the answer to a hello; behind that and a record.
  Injector injector(cable_.a, cable_.b, texts, {0, 187, 187 + 58}, kConnections);
  ASSERT_EQ(injector.failure(), "");
  auto job = start_workers_in(
      {"/usr/sbin/ip", "netns", "exec", cable_.a},
      {"--name", "far", "-H", fmt::format("{}:1,{}:1", cable_.a, cable_.b), "--via", "ip netns exec {host}",
       "--address", "10.78.0.1", "--record", path("records"), "-x", "PLIANT_SILENCE_MS=60000"},
      endless({"samples=500"}));
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(trains_on("far", 50)) << job.err();
  EXPECT_EQ(injector.attacked(), kConnections) << "what was inserted has ended no connection";
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_NE(run({"verify", path("records")}).out.find("OK: "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("owned")));
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace pliant::cli_test
