// Known mistakes (base/planted.h) that the simulation must find: each is put in, and some seed must fail.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "simulation/fleet.h"
#include "simulation/programs.h"

namespace pliant::sim {

struct Plant {
  const char* name;
  std::string_view what;                  ///< goes wrong
  std::optional<Script::Kind> program{};  ///< that shows it; else any
};

std::span<const Plant> plants();
const Plant* plant_named(std::string_view name);
/// nullptr: none. For this process and those that it forks.
void put_in(const Plant* plant);

struct Found {
  std::uint64_t seeds = 0;  ///< so many were run, in order, until one failed
  std::string failure;
};
/// The first seed that fails with it.
std::optional<Found> find_plant(const Plant& plant, FleetOptions fleet, std::optional<Script::Kind> program = {});

}  // namespace pliant::sim
