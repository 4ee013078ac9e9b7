// A group: the collectives of one view. Everything a view owns (segments, channels, operations in flight) is in here
// and goes with it; the connections are the mesh's and outlive it.
//
// The end of a view: fence() stops it here. Once *all* who are left have fenced it, nothing is published in it any
// more, and settle() finds out what stands: an operation is complete if every member, the lost included, had published
// its part. On one host all find the same. Between hosts some may lack what was on its way: they tell each other.
//
// Threads: submit(), wait() and exchange() may be called from any thread; operations of one name must be submitted
// in one order. Work is done by whoever waits, or by the group's own thread while nobody does.
#pragma once

#include <pliant/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "collective/kernels.h"
#include "collective/mesh.h"
#include "collective/region.h"

namespace pliant::collective {

/// The members of a view as a collective sees them.
struct Team {
  std::string job;
  std::uint64_t view_hash = 0;
  std::vector<wire::Member> members;  ///< in rank order
  int rank = 0;
  wire::ViewNotice view{};  ///< the whole of it, for those who learn of it from us
  /// Some have gone on to another view, and will not come into this one. Asked now and then while it forms.
  std::function<bool()> has_ended{};
  int size() const { return static_cast<int>(members.size()); }
};

struct GroupOptions {
  std::chrono::milliseconds stall_notice{5'000};  ///< a wait this long is reported, then at twice the time, and so on
  std::chrono::milliseconds nap{100};  ///< the longest sleep between two looks around; news wake sleepers before that
  std::chrono::milliseconds deadlock_notice{1'000};  ///< how long a circle of waits must stand to be called one
};

/// What to look at while the numbers pass through: nothing, the result, or the contributions as well. Floats only.
enum class Measure : std::uint8_t { nothing, result, spread };

/// Where the parts of a registered reduction begin, in bytes of its region, ascending; the first one is its own
/// beginning. Each is measured on its own as well.
using Marks = std::vector<std::size_t>;

struct MeasuredPart {
  Measured measured;
  std::size_t count = 0;  ///< elements of the result
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
  double weight = 1;  ///< 0: this rank does not contribute
  Measure measure = Measure::nothing;
  std::shared_ptr<const Marks> marks;  ///< shared: the caller may keep it; nullptr: no parts
  /// Between hosts: confirm() follows, before anything is made of the result. Otherwise wait() makes sure that
  /// everybody has it, which takes another message.
  bool confirmed_later = false;
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
  /// Of an operation that is done: what it was asked to measure, over the whole of it; the same bits on every rank.
  /// The squares of contributions count as much as their weights say.
  virtual const Measured& measured() const = 0;
  /// By mark, what this rank has measured itself: only all ranks' parts together are the whole.
  virtual const std::vector<MeasuredPart>& own_parts() const = 0;
};
using OperationHandle = std::shared_ptr<Operation>;

/// Made by form(): between processes, over shared memory and connections. A simulation has twins of its own.
class Group {
 public:
  /// Enters the view with all members of the team. Blocks until all have, one is lost, or the team's view has ended. A
  /// member that lives may take as long as it likes: it is in its user's code, and named in the log now and then.
  /// `mesh` must outlive the group; a team of one needs none.
  static Result<std::unique_ptr<Group>> form(Team team, Mesh* mesh, GroupOptions options = {});
  /// The same with a mesh of its own.
  static Result<std::unique_ptr<Group>> form(Team team, Fd listener, GroupOptions options = {});
  /// Releases; peers that still wait on this rank see it as gone. Call leave() first to go in good order.
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Does this rank's host have it, and at which place among those of its host is it?
  virtual bool is_local(int rank) const = 0;
  virtual int place_of(int rank) const = 0;

  /// Registers memory of `bytes` under a name that all ranks use for it. Does not wait for them. A name may be used
  /// again: the second region of a name is the second one on every rank.
  /// With `input` that memory, of a region of an earlier view, is this rank's input again.
  virtual Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes,
                                                        Region::Input input) = 0;
  Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes) {
    return create_region(name, bytes, {});
  }
  /// Starts a reduction. Errors here are the caller's mistakes; everything else comes from wait().
  virtual Result<OperationHandle> submit(const Request& request) = 0;
  /// Waits, and works, until it is done. Code::mismatch, peer_lost or aborted otherwise.
  virtual Status wait(const OperationHandle& operation) = 0;
  /// Everybody's row, in rank order: blocks until all have called it as often. At most kRowBytes each.
  virtual Result<std::vector<std::string>> exchange(std::string_view row) = 0;
  /// Between hosts: says that this rank has all results and rows so far, and waits until all have said so. Then nobody
  /// can lack what somebody acts on, whoever dies. On one host memory tells the same, and this returns at once.
  virtual Status confirm() = 0;

  /// Ends the view: every wait, now and later, fails with `why` (the first reason stands). When this returns, this rank
  /// publishes nothing more. Memory stays mapped until the group is destroyed.
  virtual void fence(Error why) = 0;
  virtual bool fenced() const = 0;
  /// This rank has used so many names, or names with so many lengths, that there is no room for another: a reduction
  /// that needs one fails with peer_lost, and the members need another view.
  virtual bool full() const { return false; }
  /// After the fence on all ranks: is the operation complete? If so it is done now, and its result can be read.
  virtual bool settle(const OperationHandle& operation) = 0;
  /// The same for the exchange that the fence interrupted: everybody's rows, if all had been published.
  virtual std::optional<std::vector<std::string>> settle_exchange() = 0;
  /// After the fence: what a rank that is proven dead left complete behind. Its row of the interrupted exchange, and
  /// the weight of its contribution to an operation (its input is in the region); nothing if it had not come so far.
  virtual std::optional<std::string> published_row(int rank) = 0;
  virtual std::optional<double> published_weight(const OperationHandle& operation, int rank) = 0;
  /// Tells the others that this rank goes in good order.
  virtual void leave() = 0;

 protected:
  Group() = default;
};

}  // namespace pliant::collective
