#include <algorithm>
#include <limits>

#include "fuzz/fuzz.h"
#include "wire/messages.h"

namespace pliant::fuzz {
namespace {

/// One message of every kind, so that a new kind has its seed at once.
template <std::size_t kKind = 0>
void add_every_kind(std::vector<Bytes>& out) {
  if constexpr (kKind < std::variant_size_v<wire::Message>) {
    out.push_back(wire::encode(std::variant_alternative_t<kKind, wire::Message>{}));
    add_every_kind<kKind + 1>(out);
  }
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> out;
  add_every_kind(out);
  wire::ViewNotice view;
  for (int i = 0; i < 3; ++i) view.members.emplace_back().address = "@worker";
  out.push_back(wire::encode(view));
  out.push_back(wire::encode(wire::Progress{.loss = std::numeric_limits<double>::quiet_NaN(), .text = "accuracy 0.9"}));
  out.push_back(wire::encode(wire::Refusal{.reason = std::string(wire::kMaxText, 'x')}));
  return out;
}

void run(std::span<const std::uint8_t> input) {
  auto message = wire::decode(input);
  if (message) PLIANT_ASSERT(std::ranges::equal(wire::encode(message.value()), input));
}

}  // namespace pliant::fuzz
