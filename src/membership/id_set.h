// A set of workers' ids. They are given one after the other and never twice, so a few ranges hold all of those that are
// gone, however many there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace pliant::membership {

class IdSet {
 public:
  void add(std::uint64_t id) {
    if (contains(id)) return;
    auto next = ranges_.upper_bound(id);
    auto end = id + 1;
    if (next != ranges_.end() && next->first == end) {
      end = next->second;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin() && std::prev(next)->second == id)
      std::prev(next)->second = end;
    else
      ranges_.emplace(id, end);
  }
  bool contains(std::uint64_t id) const {
    auto next = ranges_.upper_bound(id);
    return next != ranges_.begin() && id < std::prev(next)->second;
  }
  std::size_t ranges() const { return ranges_.size(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // where one begins, and where it ends
};

}  // namespace pliant::membership
