// The flags of `pliant run` that name a store outside of the job, and say how to get into it.
#pragma once

#include <string>

#include "apps/pliant/command.h"

namespace pliant::cli {

struct StoreFlags {
  std::string url;
  std::string ca, cert, key;
  std::string user, password_file;
};

void add_store_flags(CLI::App& run, StoreFlags& flags);

/// The whole address, with absolute paths: as it travels to other hosts. Empty if there is no store. Throws what does
/// not fit together.
std::string store_address(const StoreFlags& flags);
/// The same address with keys of this run's own: those of an earlier job of the same name, which nobody has removed,
/// are not this one's.
std::string store_of_its_own(const std::string& address);
/// Throws if the store will not have us, or cannot prove that it is the right one. One that does not answer may do so
/// later. Blocks for as long as a store may take to answer.
void try_store(const std::string& address);

}  // namespace pliant::cli
