// Keys of the two ends of a connection, without a handshake.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "net/sealed_records.h"

namespace pliant::net {

inline TrafficSecret traffic_secret(std::uint8_t number) {
  std::array<std::uint8_t, TrafficSecret::kSize> bytes{};
  bytes.fill(number);
  return TrafficSecret(bytes);
}

inline constexpr std::uint8_t kLeftSends = 1, kRightSends = 2;

inline ConnectionKeys left_keys() { return {traffic_secret(kLeftSends), traffic_secret(kRightSends)}; }
inline ConnectionKeys right_keys() { return {traffic_secret(kRightSends), traffic_secret(kLeftSends)}; }

/// Makes records for the right end by hand.
class LeftSealer {
 public:
  std::vector<std::uint8_t> record_of(std::span<const std::uint8_t> plain) {
    std::vector<std::uint8_t> out(RecordSealer::size_of(plain.size()));
    const auto part = std::as_bytes(plain);
    sealer_.seal({&part, 1}, out);
    return out;
  }

 private:
  RecordSealer sealer_{traffic_secret(kLeftSends)};
};

}  // namespace pliant::net
