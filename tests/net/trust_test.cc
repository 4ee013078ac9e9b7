#include "net/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/system.h"

namespace pliant::net {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("pliant-trust-" + std::to_string(random_u64()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string counting_digits() {
  std::string text;
  for (int i = 0; i < 32; ++i) text += fmt::format("{:02x}", i);
  return text;
}

void write_private(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
}

Mac sign(const Secret& secret, const std::vector<std::string_view>& texts) {
  std::vector<std::span<const std::uint8_t>> parts;
  for (auto text : texts) parts.emplace_back(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  return secret.sign(parts);
}

Result<Secret> through_a_pipe(const std::string& text) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  Fd reader(ends[0]);
  {
    Fd writer(ends[1]);
    EXPECT_EQ(write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  return Secret::from_descriptor(reader.get());
}

TEST(Trust, ASavedSecretComesBackAndIsPrivate) {
  Folder folder;
  auto path = folder / "secret";
  auto secret = Secret::random();
  auto mask = umask(0);
  secret.save(path).or_throw();
  umask(mask);
  struct stat about {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  EXPECT_EQ(about.st_size, 65);
  auto back = Secret::from_file(path).or_throw();
  EXPECT_EQ(sign(back, {"x"}), sign(secret, {"x"}));
  EXPECT_NE(sign(Secret::random(), {"x"}), sign(secret, {"x"}));
}

TEST(Trust, SavingNeverReplaces) {
  Folder folder;
  auto path = folder / "secret";
  auto secret = Secret::random();
  secret.save(path).or_throw();
  auto again = Secret::random().save(path);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::io);
  EXPECT_EQ(sign(Secret::from_file(path).or_throw(), {"x"}), sign(secret, {"x"}));
  EXPECT_FALSE(secret.save(folder / "nowhere/secret").ok());
}

TEST(Trust, AFileThatOthersCanOpenIsRefused) {
  Folder folder;
  auto path = folder / "secret";
  write_private(path, counting_digits());
  ASSERT_TRUE(Secret::from_file(path).ok());
  for (mode_t mode : {0640, 0604, 0620, 0602, 0610}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    auto secret = Secret::from_file(path);
    ASSERT_FALSE(secret.ok());
    EXPECT_EQ(secret.error().code, Code::refused);
    EXPECT_NE(secret.error().message.find("chmod 600"), std::string::npos) << secret.error().message;
  }
}

TEST(Trust, APrivateFileIsReadToItsEnd) {
  Folder folder;
  auto path = folder / "note";
  write_private(path, "12345678");
  EXPECT_EQ(read_private(path, 8).or_throw(), "12345678");
  EXPECT_EQ(read_private(path, 7).error().code, Code::invalid);
  auto secret = Secret::random();
  EXPECT_EQ(sign(Secret::from_text(secret.text()).or_throw(), {"x"}), sign(secret, {"x"}));
}

TEST(Trust, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  Folder folder;
  auto pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Secret::from_file(pipe).error().code, Code::refused);
  EXPECT_EQ(Secret::from_file(folder / ".").error().code, Code::refused);
  EXPECT_EQ(Secret::from_file("/dev/null").error().code, Code::refused);
  EXPECT_EQ(Secret::from_file(folder / "missing").error().code, Code::not_found);
}

TEST(Trust, AnotherUsersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Folder folder;
  auto path = folder / "secret";
  write_private(path, counting_digits());
  ASSERT_EQ(chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  auto secret = Secret::from_file(path);
  ASSERT_FALSE(secret.ok());
  EXPECT_EQ(secret.error().code, Code::refused);
  EXPECT_NE(secret.error().message.find("another user"), std::string::npos);
}

TEST(Trust, OnlySixtyFourDigitsAreASecret) {
  auto digits = counting_digits();
  EXPECT_TRUE(through_a_pipe(digits).ok());
  EXPECT_TRUE(through_a_pipe(digits + "\n").ok());
  for (const auto& text : {std::string(), std::string("\n"), digits.substr(1), digits + "0", digits + "\n\n",
                           digits + "\n0", "g" + digits.substr(1), " " + digits.substr(1), std::string(5000, '0')}) {
    auto secret = through_a_pipe(text);
    ASSERT_FALSE(secret.ok());
    EXPECT_EQ(secret.error().code, Code::invalid);
    EXPECT_EQ(secret.error().message.find("0102"), std::string::npos) << "part of it is shown";
  }
}

TEST(Trust, UpperCaseMeansTheSame) {
  std::string lower(64, 'a');
  std::string upper(64, 'A');
  EXPECT_EQ(sign(through_a_pipe(lower).or_throw(), {"x"}), sign(through_a_pipe(upper).or_throw(), {"x"}));
}

TEST(Trust, SignaturesAreHmacSha256) {
  auto secret = through_a_pipe(counting_digits()).or_throw();
  std::string text;  // worked out with another program
  for (auto byte : sign(secret, {"one", "", "three"})) text += fmt::format("{:02x}", byte);
  EXPECT_EQ(text, "4becb7579bdac6e368ed3d8ac6502d70bccb93ac0fa9e9957eb16bfac68d427b");
}

TEST(Trust, PartsThatAreCutElsewhereAreSignedDifferently) {
  auto secret = Secret::random();
  std::vector<Mac> all = {sign(secret, {}),          sign(secret, {""}),        sign(secret, {"", ""}),
                          sign(secret, {"abc"}),     sign(secret, {"ab", "c"}), sign(secret, {"a", "bc"}),
                          sign(secret, {"abc", ""}), sign(secret, {"", "abc"})};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j) EXPECT_EQ(equal(all[i], all[j]), i == j);
}

TEST(Trust, EveryBitCounts) {
  auto mac = sign(Secret::random(), {"x"});
  for (std::size_t bit = 0; bit < 8 * mac.size(); ++bit) {
    auto other = mac;
    other[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_FALSE(equal(mac, other));
  }
}

}  // namespace
}  // namespace pliant::net
