#include "membership/directory_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "net/loop_thread.h"

namespace pliant::membership {
namespace {

/// A store on a loop of its own, as a process has it; calls wait until they are answered.
class Client {
 public:
  explicit Client(const std::string& directory) {
    place_.do_there([&] { store_ = open_store(place_.loop(), "dir:" + directory).or_throw(); });
  }
  ~Client() {
    place_.do_there([&] { store_.reset(); });
  }
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

 private:
  net::LoopThread place_;
  std::unique_ptr<Store> store_;
};

class DirectoryStoreTest : public testing::Test {
 protected:
  DirectoryStoreTest() {
    std::string pattern = testing::TempDir() + "storeXXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~DirectoryStoreTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(DirectoryStoreTest, AValueIsDecidedOnce) {
  Client one(directory_), two(directory_);
  EXPECT_EQ(one.read("job/view/5").or_throw().revision, 0U);
  EXPECT_TRUE(one.replace("job/view/5", 0, "first").or_throw().won);
  auto late = two.replace("job/view/5", 0, "second").or_throw();
  EXPECT_FALSE(late.won);
  EXPECT_EQ(late.now.text, "first");
  EXPECT_EQ(two.read("job/view/5").or_throw().text, "first");
  EXPECT_EQ(two.read("job/view/6").or_throw().revision, 0U);
}

TEST_F(DirectoryStoreTest, AValueIsReplacedByWhoKnowsIt) {
  Client one(directory_), two(directory_);
  one.replace("k", 0, "a").or_throw();
  EXPECT_TRUE(two.replace("k", 1, "b").or_throw().won);
  auto late = one.replace("k", 1, "c").or_throw();
  EXPECT_FALSE(late.won);
  EXPECT_EQ(late.now.text, "b");
  EXPECT_EQ(late.now.revision, 2U);
}

TEST_F(DirectoryStoreTest, OfManyWhoTryAtOnceOneWins) {
  std::vector<std::thread> threads;
  std::vector<int> won(8);
  for (std::size_t i = 0; i < won.size(); ++i)
    threads.emplace_back([&, i] {
      Client client(directory_);
      for (int key = 0; key < 30; ++key)
        won[i] += client.replace("view/" + std::to_string(key), 0, std::to_string(i)).or_throw().won;
    });
  for (auto& thread : threads) thread.join();
  int all = 0;
  for (int count : won) all += count;
  EXPECT_EQ(all, 30);
}

TEST_F(DirectoryStoreTest, KeysAreNoPaths) {
  Client client(directory_);
  client.replace("../../escape", 0, "x").or_throw();
  EXPECT_EQ(client.read("../../escape").or_throw().text, "x");
  for (const auto& file : std::filesystem::directory_iterator(directory_))
    EXPECT_TRUE(file.path().filename().string().starts_with(DirectoryStore::kPrefix)) << file.path();
  client.remove_all("../").or_throw();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(DirectoryStoreTest, WhatCannotBeStoredIsSaid) {
  Client client(directory_ + "/nowhere");
  EXPECT_FALSE(client.replace("k", 0, "x").ok());
  Client good(directory_);
  EXPECT_EQ(good.replace("k", 0, std::string(Store::kLongestText + 1, 'x')).error().code, Code::invalid);
}

}  // namespace
}  // namespace pliant::membership
