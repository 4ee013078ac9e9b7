#include "base/own_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace pliant {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat seen {};
  EXPECT_EQ(lstat(path.c_str(), &seen), 0) << path;
  return seen.st_mode & 07777;
}

class OwnFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / "pliant-own-XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
    outside_ = dir_ + "/outside";
    make_directories(dir_ + "/mine").or_throw();
    std::ofstream(outside_) << "kept";
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string mine(const std::string& name = "") const { return dir_ + "/mine" + (name.empty() ? "" : "/" + name); }
  Error refusal(Links links = Links::refused) const {
    auto opened = OwnDirectory::open(mine(), links);
    EXPECT_FALSE(opened.ok());
    return opened.error();
  }
  std::string dir_, outside_;
};

TEST_F(OwnFiles, ADirectoryThatOthersCanWriteToIsRefused) {
  EXPECT_TRUE(OwnDirectory::open(mine()).ok());
  for (mode_t open : {0770, 0702, 01777}) {
    ASSERT_EQ(chmod(mine().c_str(), open), 0);
    EXPECT_EQ(refusal().code, Code::refused);
    EXPECT_NE(refusal().message.find("chmod go-w"), std::string::npos) << refusal().message;
  }
  ASSERT_EQ(chmod(mine().c_str(), 0755), 0);
  EXPECT_TRUE(OwnDirectory::open(mine()).ok()) << "others may read";
}

TEST_F(OwnFiles, AnothersDirectoryIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(chown(mine().c_str(), 65534, 65534), 0);
  EXPECT_EQ(refusal().code, Code::refused);
  EXPECT_NE(refusal().message.find("belongs to another user (65534)"), std::string::npos) << refusal().message;
}

TEST_F(OwnFiles, ALinkToADirectoryIsFollowedOnlyIfItIsOurs) {
  fs::rename(mine(), dir_ + "/real");
  fs::create_symlink("real", mine());
  EXPECT_EQ(refusal().code, Code::refused);
  EXPECT_TRUE(OwnDirectory::open(mine(), Links::own).ok());
  if (geteuid() != 0) return;
  ASSERT_EQ(lchown(mine().c_str(), 65534, 65534), 0);
  EXPECT_EQ(refusal(Links::own).code, Code::refused);
}

TEST_F(OwnFiles, WhatIsNoDirectoryOrNotThereIsNamed) {
  EXPECT_EQ(OwnDirectory::open(outside_).error().message, outside_ + " is not a directory");
  EXPECT_EQ(OwnDirectory::open(dir_ + "/none").error().code, Code::not_found);
}

TEST_F(OwnFiles, AFileIsNeitherALinkNorAnothers) {
  auto directory = OwnDirectory::open(mine()).or_throw();
  fs::create_symlink(outside_, mine("soft"));
  fs::create_hard_link(outside_, mine("hard"));
  std::ofstream(mine("open")) << "";
  ASSERT_EQ(chmod(mine("open").c_str(), 0666), 0);
  for (const char* name : {"soft", "hard", "open"})
    for (int flags : {O_RDONLY, O_RDWR | O_CREAT})
      EXPECT_EQ(directory.open_file(name, flags).error().code, Code::refused) << name;
  EXPECT_FALSE(directory.open_file("soft", O_WRONLY | O_CREAT | O_TRUNC).ok());
  EXPECT_EQ(directory.read_file("soft", 100).error().code, Code::refused);
  EXPECT_EQ(fs::file_size(outside_), 4U);
  fs::create_symlink(dir_ + "/new", mine("dangling"));
  EXPECT_FALSE(directory.open_file("dangling", O_WRONLY | O_CREAT).ok());
  EXPECT_FALSE(fs::exists(dir_ + "/new"));
  if (geteuid() != 0) return;
  std::ofstream(mine("theirs")) << "";
  ASSERT_EQ(chown(mine("theirs").c_str(), 65534, 65534), 0);
  EXPECT_EQ(directory.open_file("theirs", O_RDWR | O_CREAT).error().code, Code::refused);
}

TEST_F(OwnFiles, NewOnesHaveTheModeThatWasAskedForWhateverTheUmask) {
  auto directory = OwnDirectory::open(mine()).or_throw();
  for (mode_t mask : {0, 022, 077}) {
    auto before = umask(mask);
    EXPECT_TRUE(directory.open_file("a", O_WRONLY | O_CREAT).ok());
    EXPECT_TRUE(directory.open_file("b", O_WRONLY | O_CREAT, 0644).ok());
    EXPECT_TRUE(make_directories(mine("c/d")).ok());
    EXPECT_TRUE(make_directories(mine("e"), folder_mode(0644)).ok());
    umask(before);
    EXPECT_EQ(mode_of(mine("a")), 0600U);
    EXPECT_EQ(mode_of(mine("b")), 0644U);
    EXPECT_EQ(mode_of(mine("c")), 0700U);
    EXPECT_EQ(mode_of(mine("c/d")), 0700U);
    EXPECT_EQ(mode_of(mine("e")), 0755U);
    for (const char* name : {"a", "b", "c", "e"}) fs::remove_all(mine(name));
  }
}

TEST_F(OwnFiles, TextComesBackUnlessThereIsTooMuch) {
  auto directory = OwnDirectory::open(mine()).or_throw();
  std::string text(10000, 'x');
  std::ofstream(mine("text")) << text;
  EXPECT_EQ(directory.read_file("text", 10000).or_throw(), text);
  EXPECT_EQ(directory.read_file("text", 9999).error().code, Code::invalid);
  EXPECT_EQ(directory.read_file("none", 1).error().code, Code::not_found);
}

TEST(FileMode, OthersMayReadAtMost) {
  EXPECT_EQ(parse_file_mode("0640").or_throw(), 0640U);
  EXPECT_EQ(parse_file_mode("644").or_throw(), 0644U);
  EXPECT_EQ(folder_mode(0600), 0700U);
  EXPECT_EQ(folder_mode(0640), 0750U);
  for (const char* wrong : {"", "0", "0444", "0660", "0666", "0700", "0648", "rw", "06000"})
    EXPECT_EQ(parse_file_mode(wrong).error().code, Code::invalid) << wrong;
}

}  // namespace
}  // namespace pliant
