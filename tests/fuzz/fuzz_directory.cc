// A peer's control segment with arbitrary words in it: reading it must stay inside of it.
#include <cstring>
#include <memory>

#include "collective/directory.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {
namespace {

using collective::Channel;
using collective::Control;

}  // namespace

std::vector<Bytes> seeds() {
  Bytes one(sizeof(Channel) + 4, 0);
  one[0] = 1;
  Bytes wild(2 * sizeof(Channel) + 4, 0xff);
  return {one, wild};
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 4) return;
  static const auto control = std::make_unique<Control>();  // large, and zero where nothing is written
  std::uint32_t channels = 0;
  std::memcpy(&channels, input.data(), 4);
  auto size = std::min(input.size() - 4, sizeof(Channel) * 8);
  std::memcpy(static_cast<void*>(&control->channel[0]), input.data() + 4, size);
  control->channels.store(channels % 10 == 9 ? channels : channels % 10);
  collective::PeerDirectory directory(control.get());
  const auto& own = control->channel[0];
  for (const auto* found : {directory.find(std::string(own.name_text()), own.first_use), directory.find("x", 0)}) {
    if (found) (void)collective::describe(*found);
    (void)collective::compare(own, own.first_use, found);
  }
  std::memset(static_cast<void*>(&control->channel[0]), 0, size);
}

}  // namespace pliant::fuzz
