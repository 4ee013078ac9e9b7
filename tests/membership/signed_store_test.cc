#include "membership/signed_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"

namespace pliant::membership {
namespace {

const net::Secret kSecret = net::Secret::from_text(std::string(64, 'a')).or_throw();
const net::Secret kOther = net::Secret::from_text(std::string(64, 'b')).or_throw();
const ValueSigner kSigner{kSecret, "job"};

std::string signed_by_job(const std::string& key, std::uint64_t number, const std::string& text) {
  return sign_value(kSigner, key, number, text);
}

// ---- values ----

TEST(SignedValue, IsReadByWhoeverKnowsTheSecret) {
  for (const auto& text : {std::string(), std::string("text"), std::string("\0\xff\n", 3)}) {
    auto bytes = signed_by_job("key", 7, text);
    EXPECT_EQ(bytes.size(), text.size() + kSignatureSize);
    auto opened = open_value(kSigner, "key", bytes).or_throw();
    EXPECT_EQ(opened.number, 7U);
    EXPECT_EQ(opened.text, text);
  }
}

TEST(SignedValue, IsOfOneJobAndOneKeyOnly) {
  auto bytes = signed_by_job("key", 7, "text");
  EXPECT_EQ(open_value(kSigner, "yek", bytes).error().code, Code::refused);
  EXPECT_EQ(open_value({kSecret, "another"}, "key", bytes).error().code, Code::refused);
  EXPECT_EQ(open_value({kOther, "job"}, "key", bytes).error().code, Code::refused);
}

TEST(SignedValue, AnyChangedBitIsFound) {
  const auto good = signed_by_job("key", 7, "text");
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      EXPECT_FALSE(open_value(kSigner, "key", bytes).ok()) << at << "." << bit;
    }
}

TEST(SignedValue, AnyOtherLengthIsFound) {
  const auto good = signed_by_job("key", 7, "text");
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(open_value(kSigner, "key", good.substr(0, size)).error().code,
              size < kSignatureSize ? Code::protocol : Code::refused);
  EXPECT_FALSE(open_value(kSigner, "key", good + "x").ok());
  EXPECT_EQ(open_value(kSigner, "key", std::string(200, 'x')).error().code, Code::protocol);
}

// ---- the store ----

/// What a server has. Anybody can write to it.
class Shelf {
 public:
  void put(const std::string& key, const std::string& bytes) { entries_[key] = {bytes, ++revision_}; }
  void remove(const std::string& key) { entries_.erase(key); }
  Entry get(const std::string& key) const { return entries_.contains(key) ? entries_.at(key) : Entry{}; }

  /// Called before every replacement.
  std::function<void()> before_replace = [] {};

 private:
  std::map<std::string, Entry> entries_;
  std::uint64_t revision_ = 0;
};

/// Answers when the test says so.
class ShelfStore final : public Store {
 public:
  ShelfStore(Shelf& shelf, std::vector<std::function<void()>>& answers) : shelf_(shelf), answers_(answers) {}
  void read(const std::string& key, std::function<void(Result<Entry>)> done) override {
    answers_.emplace_back([this, key, done = std::move(done)] { done(shelf_.get(key)); });
  }
  void replace(const std::string& key, std::uint64_t revision, std::string text,
               std::function<void(Result<Attempt>)> done) override {
    answers_.emplace_back([this, key, revision, text = std::move(text), done = std::move(done)] {
      shelf_.before_replace();
      bool won = shelf_.get(key).revision == revision;
      if (won) shelf_.put(key, text);
      done(Attempt{won, shelf_.get(key)});
    });
  }
  void remove_all(const std::string& prefix, std::function<void(Status)> done) override {
    answers_.emplace_back([this, prefix, done = std::move(done)] {
      shelf_.remove(prefix);
      done({});
    });
  }

 private:
  Shelf& shelf_;
  std::vector<std::function<void()>>& answers_;
};

/// A process of the job, whose calls wait until they are answered.
class Process {
 public:
  explicit Process(Shelf& shelf) : store_(std::make_unique<ShelfStore>(shelf, answers_), kSigner) {}
  Entry read(const std::string& key) {
    Result<Entry> got = Entry{};
    store_.read(key, [&](Result<Entry> entry) { got = std::move(entry); });
    answer_all();
    return std::move(got).or_throw();
  }
  Result<Attempt> replace(const std::string& key, std::uint64_t revision, const std::string& text) {
    Result<Attempt> got = Error{Code::internal, "no answer"};
    store_.replace(key, revision, text, [&](Result<Attempt> attempt) { got = std::move(attempt); });
    answer_all();
    return got;
  }

 private:
  void answer_all() {
    while (!answers_.empty()) {
      auto answer = std::move(answers_.front());
      answers_.erase(answers_.begin());
      answer();
    }
  }
  std::vector<std::function<void()>> answers_;
  SignedStore store_;
};

class SignedStoreTest : public testing::Test, private log::Sink {
 protected:
  SignedStoreTest() { log::redirect(this); }
  ~SignedStoreTest() override { log::redirect(nullptr); }
  auto times_named(const std::string& part) const {
    return std::ranges::count_if(lines_, [&](const auto& line) { return line.find(part) != std::string::npos; });
  }
  std::uint64_t stored_number(const std::string& key) const {
    return open_value(kSigner, key, shelf_.get(key).text).or_throw().number;
  }
  Shelf shelf_;
  Process one_{shelf_}, two_{shelf_};
  std::vector<std::string> lines_;

 private:
  bool enabled(log::Level level) override { return level >= log::Level::warn; }
  void write(log::Level, std::string_view text) override { lines_.emplace_back(text); }
};

TEST_F(SignedStoreTest, AValueIsReplacedByWhoKnowsWhatItWas) {
  EXPECT_EQ(one_.read("k").revision, 0U);
  auto created = one_.replace("k", 0, "one").or_throw();
  EXPECT_TRUE(created.won);
  EXPECT_EQ(created.now.text, "one");
  EXPECT_EQ(two_.read("k").text, "one");
  EXPECT_EQ(two_.read("k").revision, created.now.revision);
  auto late = two_.replace("k", 0, "mine").or_throw();
  EXPECT_FALSE(late.won);
  EXPECT_EQ(late.now.text, "one");
  auto replaced = two_.replace("k", created.now.revision, "two").or_throw();
  EXPECT_TRUE(replaced.won);
  auto stale = one_.replace("k", created.now.revision, "three").or_throw();
  EXPECT_FALSE(stale.won);
  EXPECT_EQ(stale.now.text, "two");
  EXPECT_TRUE(one_.replace("k", stale.now.revision, "four").or_throw().won);
  EXPECT_EQ(stored_number("k"), 3U);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(SignedStoreTest, WhatTheJobHasNotSignedIsAbsentAndNamedOnce) {
  shelf_.put("k", "a plain text");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one_.read("k").revision, 0U);
  EXPECT_EQ(times_named("'k'"), 1);
  EXPECT_EQ(times_named("it is not signed by this job"), 1);
  shelf_.put("k", sign_value({kOther, "job"}, "k", 1, "by another"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one_.read("k").revision, 0U);
  EXPECT_EQ(times_named("its signature is wrong"), 1);
  shelf_.put("l", signed_by_job("k", 1, "a good value, elsewhere"));
  EXPECT_EQ(one_.read("l").revision, 0U);
  EXPECT_EQ(times_named("'l'"), 1);
}

TEST_F(SignedStoreTest, WhatDoesNotCountIsReplaced) {
  for (const auto& bad : {std::string("plain"), sign_value({kOther, "job"}, "k", 9, "x"), std::string()}) {
    shelf_.remove("k");
    shelf_.put("k", bad);
    auto attempt = two_.replace("k", 0, "ours").or_throw();
    EXPECT_TRUE(attempt.won);
    EXPECT_EQ(attempt.now.text, "ours");
    EXPECT_EQ(attempt.now.revision, shelf_.get("k").revision);
    EXPECT_EQ(one_.read("k").text, "ours");
  }
}

TEST_F(SignedStoreTest, AnOldValueThatWasPutBackIsAbsentForWhoHasSeenANewerOne) {
  auto first = one_.replace("k", 0, "first").or_throw();
  auto old = shelf_.get("k").text;
  auto second = one_.replace("k", first.now.revision, "second").or_throw();
  EXPECT_EQ(two_.read("k").text, "second");
  shelf_.put("k", old);
  for (auto* process : {&one_, &two_}) EXPECT_EQ(process->read("k").revision, 0U);
  EXPECT_EQ(times_named("an old one was put back (number 1 after number 2)"), 2) << "once by each process";
  auto lost = one_.replace("k", second.now.revision, "third").or_throw();
  EXPECT_FALSE(lost.won);
  EXPECT_EQ(lost.now.revision, 0U);
  EXPECT_TRUE(one_.replace("k", 0, "third").or_throw().won);
  EXPECT_EQ(two_.read("k").text, "third");
  EXPECT_EQ(stored_number("k"), 3U) << "above all that were seen";
}

TEST_F(SignedStoreTest, ARemovedValueIsAbsentAndItsSuccessorHasAHigherNumber) {
  auto first = one_.replace("k", 0, "first").or_throw();
  one_.replace("k", first.now.revision, "second").or_throw();
  shelf_.remove("k");
  EXPECT_EQ(one_.read("k").revision, 0U);
  EXPECT_TRUE(one_.replace("k", 0, "third").or_throw().won);
  EXPECT_EQ(stored_number("k"), 3U);
  EXPECT_TRUE(lines_.empty()) << "a job removes its own values, too";
}

TEST_F(SignedStoreTest, WhoeverIsFasterThanWhoeverReplacesABadValueWins) {
  shelf_.put("k", "plain");
  int calls = 0;
  shelf_.before_replace = [&] {
    if (++calls == 2) shelf_.put("k", signed_by_job("k", 1, "faster"));
  };
  auto attempt = one_.replace("k", 0, "slower").or_throw();
  EXPECT_FALSE(attempt.won);
  EXPECT_EQ(attempt.now.text, "faster");
}

TEST_F(SignedStoreTest, WhoeverOverwritesAllTheTimeHoldsNobodyForEver) {
  int calls = 0;
  shelf_.before_replace = [&] { shelf_.put("k", "plain " + std::to_string(++calls)); };
  auto attempt = one_.replace("k", 0, "ours");
  ASSERT_FALSE(attempt.ok());
  EXPECT_EQ(attempt.error().code, Code::peer_lost);
  EXPECT_LT(calls, 10);
}

}  // namespace
}  // namespace pliant::membership
