// Registered memory in which LibTorch lets large gradients be born, so that nothing is moved before it is reduced.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace pliant::adapter {

/// A set of places, each for one parameter's gradient. While backward runs on the thread that made the place, an
/// allocation of exactly its size is given the place instead of fresh memory; other allocations are LibTorch's as ever.
/// LibTorch has one allocator per process, which this stands in front of from the first place on.
///
/// A tensor that came to live in a place by its size alone, and is still there when the place is needed, moves out
/// without noticing: it keeps its address and its content and loses only the memory behind them.
///
/// Threads: one at a time, but tensors may die on any.
class Places {
 public:
  static constexpr std::size_t kLeast = 256 << 10;  ///< smaller gradients are moved faster than looked up

  Places() = default;
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places();

  /// Makes a place of the `bytes` at `memory`: page-aligned, in a shared mapping that is padded to whole pages. Places
  /// of one size are given in the order in which they were added. Returns the place's number.
  std::size_t add(std::byte* memory, std::size_t bytes);
  /// Where tensors that live in the place see it: another address of the same memory.
  std::byte* address(std::size_t place) const;
  /// The tensor that the place is for was born in it.
  void confirm(std::size_t place);
  /// Takes the place for a tensor made elsewhere; whoever lives there moves out. Its address may change. A place that
  /// strangers take again and again is not given any more.
  std::byte* take(std::size_t place);
  /// The end of a tensor in the place at `address`.
  static void give_back(void* address);

 private:
  struct Window;
  class Allocator;
  std::vector<std::shared_ptr<Window>> windows_;
};

}  // namespace pliant::adapter
