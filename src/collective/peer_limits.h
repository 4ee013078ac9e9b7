// What workers on other hosts may cost this one, before anything is known of what they say.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "wire/messages.h"

namespace pliant::collective {

/// Those who have broken a rule, for good. Threads: one.
class Offenders {
 public:
  /// False if it is known.
  bool add(std::uint64_t id) { return ids_.insert(id).second; }
  bool contains(std::uint64_t id) const { return ids_.contains(id); }
  std::size_t size() const { return ids_.size(); }

 private:
  std::set<std::uint64_t> ids_;
};

/// Letters that have come and were not looked at yet, in bytes of each sender.
class Unread {
 public:
  /// A worker says little, and its letters are taken as they come: whoever has sent so much more does nothing else.
  static constexpr std::size_t kMost = 64 << 20;

  /// A letter that is not read, as long as it lives.
  class Letter {
   public:
    Letter(std::shared_ptr<std::atomic<std::size_t>> count, std::size_t bytes)
        : count_(std::move(count)), bytes_(bytes) {}
    void read() { count_->fetch_sub(std::exchange(bytes_, 0)); }

   private:
    std::shared_ptr<std::atomic<std::size_t>> count_;  // shared: with the others of its sender, on two threads
    std::size_t bytes_;
  };
  /// Called by the thread that receives; Letter::read() by any. False: it is too much.
  bool fits(std::uint64_t from, std::size_t bytes) { return count_of(from)->load() + bytes <= kMost; }
  Letter add(std::uint64_t from, std::size_t bytes) {
    auto count = count_of(from);
    count->fetch_add(bytes);
    return {std::move(count), bytes};
  }

 private:
  std::shared_ptr<std::atomic<std::size_t>> count_of(std::uint64_t from) {
    if (counts_.size() > wire::kMaxMembers)  // of workers that are long gone
      std::erase_if(counts_, [](const auto& entry) { return *entry.second == 0; });
    auto& count = counts_[from];
    if (!count) count = std::make_shared<std::atomic<std::size_t>>(0);
    return count;
  }

  std::map<std::uint64_t, std::shared_ptr<std::atomic<std::size_t>>> counts_;
};

struct PeerLimits {
  Offenders offenders;  ///< the loop's thread's
  Unread unread;        ///< the streams' thread's
};

}  // namespace pliant::collective
