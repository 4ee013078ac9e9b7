// Workers on this machine: as many slots as are asked for, up to a limit, at once.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "apps/pliant/provider.h"

namespace pliant::cli {

class LocalProvider final : public Provider {
 public:
  /// `set_slots` hears how many there are to be from now on.
  LocalProvider(std::uint32_t most, std::function<void(std::uint32_t)> set_slots)
      : most_(most), set_slots_(std::move(set_slots)) {}

  std::optional<std::uint32_t> capacity() const override { return most_; }
  void request(std::uint32_t slots) override { set_slots_(std::min(slots, most_)); }
  void release(std::uint32_t slots) override { set_slots_(std::min(slots, most_)); }
  std::optional<double> price() const override { return std::nullopt; }
  void end() override {}

 private:
  std::uint32_t most_;
  std::function<void(std::uint32_t)> set_slots_;
};

}  // namespace pliant::cli
