// A group: the collectives of one view. Everything a view owns (connections, segments, channels, operations in
// flight) is in here and goes with it.
//
// Threads: submit(), wait() and exchange() may be called from any thread; operations of one name must be submitted
// in one order. Work is done by whoever waits, or by the group's own thread while nobody does.
#pragma once

#include <pliant/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "collective/mesh.h"
#include "collective/region.h"

namespace pliant::collective {

struct GroupOptions {
  std::chrono::milliseconds form_limit{30'000};   ///< how long peers may take to connect
  std::chrono::milliseconds stall_notice{5'000};  ///< a wait this long is reported, then at twice the time, and so on
  std::chrono::milliseconds deadlock_notice{1'000};  ///< how long a circle of waits must stand to be called one
  /// Called once, from a thread of the group, when the loss of `rank` fenced it.
  std::function<void(int rank, const Error& why)> on_lost;
};

/// One reduction to do. Registered: `region` and `offset`; the result is another memory, see Operation::result().
/// Plain: `in` and `out`, which may be the same; both must stay until the operation is done.
struct Request {
  std::string_view name;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  std::size_t count = 0;  ///< elements
  std::shared_ptr<Region> region;
  std::size_t offset = 0;  ///< bytes; a multiple of the element's size
  const void* in = nullptr;
  void* out = nullptr;
  double weight = 1;          ///< 0: this rank does not contribute
  bool squares = false;       ///< also compute the result's sum of squares
  bool caller_waits = false;  ///< wait() follows at once: no other thread needs to be woken
};

/// An operation in flight. Handles are shared between the caller and the group's thread.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() const = 0;
  /// Of a registered operation that is done: the reduced elements, readable until this rank submits the use after the
  /// next of the same name. Clipping and other changes belong into the update: this memory is shared and read-only.
  virtual const void* result() const = 0;
  /// Of an operation that is done: the sum of squares over the whole result, the same bits on every rank.
  virtual double squares() const = 0;
};
using OperationHandle = std::shared_ptr<Operation>;

class Group {
 public:
  /// Connects to all members of the team. Blocks until all are there or the limit has passed.
  static Result<std::unique_ptr<Group>> form(Team team, Fd listener, GroupOptions options = {});
  /// Releases; peers that still wait on this rank see it as gone. Call leave() first to go in good order.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int size() const;

  /// Registers memory of `bytes` under a name that all ranks use for it. Does not wait for them.
  Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes);
  /// Starts a reduction. Errors here are the caller's mistakes; everything else comes from wait().
  Result<OperationHandle> submit(const Request& request);
  /// Waits, and works, until it is done. Code::mismatch, peer_lost or aborted otherwise.
  Status wait(const OperationHandle& operation);
  /// Everybody's row, in rank order: blocks until all have called it as often. At most kRowBytes each.
  Result<std::vector<std::string>> exchange(std::string_view row);

  /// Ends the view: every wait, now and later, fails with `why`. Memory stays mapped until the group is destroyed.
  void fence(Error why);
  /// Tells the others that this rank goes in good order.
  void leave();

 private:
  class Impl;
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pliant::collective
