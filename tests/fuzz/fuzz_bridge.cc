// Frames by a member of the job, in any order: a bridge takes those that the plan allows, refuses the others, and keeps
// no more than its bounds.
//   Each step is a byte that says what happens, a byte that says who does it, and what that takes from the input:
//   frames come whole, begin and never end, or end late; this rank describes, reduces, publishes rows, or is over.
#include <cstring>
#include <map>

#include "base/result.h"
#include "collective/lone_bridge.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {
namespace {

using collective::Channel;
using collective::CrossingPlan;
using collective::FrameHeader;
using collective::FrameKind;
using collective::LoneBridge;
using collective::Memory;

constexpr std::size_t kBytes = std::size_t{3} << 20;

class Steps {
 public:
  explicit Steps(std::span<const std::uint8_t> input) : input_(input) {}
  bool done() const { return input_.empty(); }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  template <class T>
  T take() {
    T value{};
    auto size = std::min(sizeof(T), input_.size());
    std::memcpy(static_cast<void*>(&value), input_.data(), size);
    input_ = input_.subspan(size);
    return value;
  }

 private:
  std::span<const std::uint8_t> input_;
};

/// Fields as the input has them, mostly small: random 64-bit numbers hit nothing.
FrameHeader header_from(Steps& steps) {
  FrameHeader header;
  header.kind = steps.byte() % 8;
  header.view = LoneBridge::kView;
  header.slot = steps.byte();
  header.index = steps.byte();
  header.use = steps.byte();
  header.value = steps.byte();
  header.number = steps.byte() % 4;
  switch (steps.byte() % 8) {
    case 0:
      header.bytes = FrameHeader::kMostBytes;
      break;
    case 1:
      header.bytes = steps.take<std::uint32_t>() % (FrameHeader::kLongest + 1);
      break;
    case 2:
      header.bytes = collective::kDescription;
      break;
    case 3:
      header.index = steps.take<std::uint32_t>();
      header.use = steps.take<std::uint64_t>();
      header.value = steps.take<std::uint64_t>();
      header.number = steps.take<double>();
      break;
    case 4:
      header.index *= static_cast<std::uint32_t>(FrameHeader::kMostBytes / collective::kPage);
      header.bytes = FrameHeader::kMostBytes;
      break;
    default:
      header.bytes = steps.byte();
  }
  return header;
}

/// One job, and what the fuzzer holds of it.
class Play {
 public:
  void run(Steps& steps) {
    while (!steps.done()) step(steps);
    check();
  }

 private:
  struct Open {
    FrameHeader header;
    std::vector<std::byte> buffer;
    std::byte* place = nullptr;
  };

  void step(Steps& steps) {
    auto what = steps.byte() % 10;
    auto who = steps.byte() % 5;  // 0 is this rank itself, 4 nobody
    switch (what) {
      case 0:
        if (lone_.own().channels < 8)
          plans_.push_back(lone_.describe("n" + std::to_string(plans_.size()), kBytes,
                                          who % 2 ? Memory::plain : Memory::registered));
        break;
      case 1:
        if (!plans_.empty()) reduce(steps.byte() % plans_.size());
        break;
      case 2:
        ++(who % 2 ? lone_.own().rows : lone_.own().confirmed);
        break;
      case 3:
        announce(who, steps);
        break;
      case 4:
        if (steps.byte() == 255) lone_.end_view();
        break;
      case 5:
        begin(who, header_from(steps));
        break;
      case 6:
        end(who);
        break;
      default:
        begin(who, header_from(steps));
        end(who);
    }
  }

  /// A chunk is over, as the engine would have it: all have reduced it, and nothing of it is being received.
  void reduce(std::size_t index) {
    ++lone_.own().channel[index].reduced;
    collective::Crossing over;
    over.key = {static_cast<std::uint32_t>(index), lone_.own().channel[index].reduced - 1};
    bool in_use = std::ranges::any_of(open_, [&](const auto& entry) {
      return entry.second.header.use == index && entry.second.header.value == over.key.chunk;
    });
    if (!in_use) lone_.bridge().close(over);
  }

  void announce(int who, Steps& steps) {
    auto channel = std::make_unique<Channel>();
    auto index = steps.byte() % 8;
    LoneBridge::fill(*channel, "n" + std::to_string(index), kBytes,
                     steps.byte() % 2 ? Memory::plain : Memory::registered);
    if (auto spoil = steps.byte(); spoil % 2)
      reinterpret_cast<std::uint8_t*>(channel.get())[steps.take<std::uint16_t>() % collective::kDescription] = spoil;
    judge(lone_.announce(who, static_cast<std::uint32_t>(index), *channel));
  }

  void begin(int who, const FrameHeader& header) {
    if (open_.contains(who)) end(who);  // one frame at a time on a lane
    auto& open = open_[who];
    open.header = header;
    auto place = lone_.bridge().place_for(LoneBridge::kId + static_cast<std::uint64_t>(who), header, open.buffer);
    if (!place.ok()) {
      PLIANT_ASSERT(place.error().code == Code::protocol && place.error().message.find('\n') == std::string::npos);
      open_.erase(who);
      return;
    }
    open.place = place.value();
    if (open.place) std::memset(open.place, who, header.bytes);
  }

  void end(int who) {
    auto at = open_.find(who);
    if (at == open_.end()) return;
    auto& open = at->second;
    if (open.place) std::memset(open.place, who, open.header.bytes);  // still its own memory
    if (open.place || open.header.bytes == 0)
      judge(lone_.bridge().on_frame(LoneBridge::kId + static_cast<std::uint64_t>(who), open.header, open.place));
    open_.erase(at);
  }

  static void judge(const Status& status) {
    if (!status.ok()) PLIANT_ASSERT(status.error().code == Code::protocol);
  }

  void check() {
    std::size_t most = 0;
    for (const auto& plan : plans_) most += plan.ahead();
    // Chunks that were over while a piece of them was on its way stay until the view ends.
    std::size_t reduced = 0;
    for (std::size_t i = 0; i < plans_.size(); ++i) reduced += lone_.own().channel[i].reduced;
    PLIANT_ASSERT(lone_.bridge().crossings() <= most + reduced);
    for (int rank = 1; rank < 4; ++rank) {
      const auto& seen = *lone_.bridge().mirror(rank);
      PLIANT_ASSERT(seen.rows <= lone_.own().rows + 1 && seen.confirmed <= lone_.own().confirmed + 1);
      PLIANT_ASSERT(seen.row_size[0] <= collective::kRowBytes && seen.row_size[1] <= collective::kRowBytes);
      PLIANT_ASSERT(seen.channels <= collective::kMaxChannels && seen.complaint_length <= sizeof(seen.complaint));
      for (std::uint32_t i = 0; i < seen.channels; ++i) {
        PLIANT_ASSERT(!seen.channel[i].name_text().empty() && seen.channel[i].chunks > 0);
        PLIANT_ASSERT(seen.channel[i].copied <= seen.channel[i].reduced);
      }
    }
  }

  LoneBridge lone_;
  std::vector<CrossingPlan> plans_;
  std::map<int, Open> open_;
};

}  // namespace

std::vector<Bytes> seeds() {
  // It describes a channel; rank 1 begins a partial of it twice, describes it, and says that it has submitted it.
  Bytes partial{1, 1, 0, 0, 0, 1, 0};
  Bytes play{0, 0};
  for (int i = 0; i < 2; ++i) {
    play.insert(play.end(), {5, 1});
    play.insert(play.end(), partial.begin(), partial.end());
  }
  play.insert(play.end(), {3, 1, 0, 0, 0, 7, 1, 4, 0, 0, 0, 1, 1, 7, 0});
  return {{0, 0}, play, Bytes(500, 7), Bytes(200, 0)};
}

void run(std::span<const std::uint8_t> input) {
  Steps steps(input);
  Play().run(steps);
}

}  // namespace pliant::fuzz
