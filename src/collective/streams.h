// Data between hosts: several lanes (TCP connections) to each peer, one thread that reads them all, and frames that go
// straight from the memory where data lies to the memory where it belongs.
//
// Lane 0 carries words: small frames that are never behind large ones. The others carry data. What a lane carries is
// sealed in records (net/sealed_records.h), unless its two ends have agreed otherwise: large bytes begin a record of
// their own, which is opened straight into the memory where they belong. Nothing is acted on before its record has
// opened. Lanes belong to the job and not to a view: frames name theirs, and those of a view that nobody subscribed to
// are read and dropped.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "net/sealed_records.h"

namespace pliant::collective {

/// What precedes every frame's bytes. docs/bytes.md fixes the layout. What the fields mean is up to `kind`.
struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t kind = 0;
  std::uint16_t slot = 0;
  std::uint32_t bytes = 0;  ///< that follow
  std::uint32_t index = 0;
  std::uint64_t view = 0;  ///< hash
  std::uint64_t name = 0;
  std::uint64_t use = 0;
  std::uint64_t value = 0;
  double number = 0;
  double spread = 0;

  static constexpr std::uint32_t kMagic = 0x4d524650;     // "PFRM"
  static constexpr std::uint32_t kMostBytes = 256 << 10;  ///< of a piece of a result
  static constexpr std::uint32_t kLongest = 264 << 10;    ///< of any frame: a letter may be longer than a piece
};
static_assert(sizeof(FrameHeader) == 64);

/// What a view wants to hear. Called on the streams' thread, one call at a time. Senders are not believed: an error
/// says which rule a frame breaks and what was seen. Nothing of that frame is used, and its sender is lost for it.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// A frame begins: memory for its bytes, which stays until the view is unsubscribed or the frame is complete; or
  /// nullptr to have them dropped. `lane_buffer` is memory of the lane that it comes on, for frames that are small or
  /// rare: only one frame at a time comes on a lane.
  virtual Result<std::byte*> place_for(std::uint64_t from, const FrameHeader& header,
                                       std::vector<std::byte>& lane_buffer) = 0;
  /// All of them are there.
  virtual Status on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) = 0;
};

class Streams {
 public:
  using Told = std::function<void(std::uint64_t peer, const std::string& how)>;
  /// `on_lost` hears, on the streams' thread, that a lane of a peer has ended. The peer's other lanes are closed too.
  /// `on_offence`, if it is not empty, hears instead of it what a peer has sent that it must not.
  explicit Streams(Told on_lost, Told on_offence = {});
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// A connection whose other end is known. `received`: bytes that were read of it already. Without `keys` it carries
  /// plain frames.
  void add(std::uint64_t peer, std::uint32_t lane, Fd socket, std::span<const std::uint8_t> received = {},
           std::optional<net::ConnectionKeys> keys = std::nullopt);
  /// Closes all lanes of a peer, without a word.
  void drop(std::uint64_t peer);
  /// Lanes to a peer that stand.
  std::size_t lanes(std::uint64_t peer) const;
  /// When anything came from it last; 0 if it has no lanes.
  Nanos heard(std::uint64_t peer) const;

  void subscribe(std::uint64_t view, FrameSink* sink);
  /// When this returns, nothing of it is called any more. Not from the streams' thread.
  void unsubscribe(std::uint64_t view);

  /// Sends, now if the lane is free, else soon and in order. The bytes must stay as they are until they are sent, and
  /// `keep` is held so long. From any thread; to a peer that is lost it does nothing. `lane` counts modulo those there
  /// are; words go on lane 0, data on the others (on lane 0 if it is the only one).
  void send_words(std::uint64_t peer, const FrameHeader& header, std::span<const std::byte> bytes);
  void send_data(std::uint64_t peer, std::size_t lane, const FrameHeader& header, std::span<const std::byte> bytes,
                 std::shared_ptr<const void> keep);

 private:
  struct Frame {
    FrameHeader header;
    std::span<const std::byte> bytes;
    std::vector<std::byte> own;  // the bytes of small frames
    std::shared_ptr<const void> keep;
  };
  struct Lane;
  using LanePtr = std::shared_ptr<Lane>;  // shared: senders hold one while the thread may drop it

  void run();
  void wake();
  LanePtr lane_of(std::uint64_t peer, std::size_t lane) const;
  void send(const LanePtr& lane, Frame frame);
  Status read_from(Lane& lane);
  Status read_plain(Lane& lane);
  Status read_sealed(Lane& lane);
  Status open_all(Lane& lane, std::span<const std::uint8_t> bytes);
  Status open_record(Lane& lane, std::span<const std::uint8_t> body);
  Status take(Lane& lane, std::span<const std::byte> bytes);
  static void look_when_complete(Lane& lane);
  Status begin_frame(Lane& lane);
  void check_place(Lane& lane) const;
  Status end_frame(Lane& lane);
  void lose(std::uint64_t peer, const Error& why);
  bool write_to(Lane& lane);
  static bool write_plain(Lane& lane);
  static bool write_sealed(Lane& lane);
  static void seal_some(Lane& lane);
  void want_to_write(Lane& lane, bool wanted);

  const Told on_lost_, on_offence_;
  SteadyClock clock_;
  Fd epoll_;
  Fd wake_;
  std::vector<std::byte> staging_;      // guarded by sinks_mutex_
  std::vector<std::uint8_t> unopened_;  // what was read of a sealed lane; the thread's

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::map<std::uint32_t, LanePtr>> peers_;  // guarded by mutex_
  std::map<std::uint64_t, LanePtr> by_number_;                       // guarded by mutex_; epoll names lanes by number
  std::uint64_t next_number_ = 1;                                    // guarded by mutex_

  struct Subscription {
    FrameSink* sink = nullptr;
    std::uint64_t number = 0;
  };
  std::mutex sinks_mutex_;                       // held while anything is read
  std::map<std::uint64_t, Subscription> sinks_;  // by view; guarded by sinks_mutex_, and so is every lane's place
  std::uint64_t next_subscription_ = 1;          // guarded by sinks_mutex_
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: everything above exists before it runs
};

}  // namespace pliant::collective
