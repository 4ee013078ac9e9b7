// Small state to write, folders that vanish with their test, and files to spoil.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/hash.h"
#include "session/checkpoint.h"

namespace pliant::session {

class TempFolder {
 public:
  TempFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "pliant-checkpoint-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// Changes one byte in place: a file that is cut to nothing and written again goes to the disk each time, on ext4.
inline void poke(const std::string& path, std::size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at)).put(byte);
}

inline std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// An item of every type, of sizes that do not divide each other. The bytes are a function of `seed`.
class EveryType {
 public:
  explicit EveryType(std::uint64_t seed, std::size_t count = 7) {
    for (int type = 0; type < kDtypes; ++type) {
      auto dtype = static_cast<Dtype>(type);
      auto& bytes = memory_.at(static_cast<std::size_t>(type));
      bytes.resize(count * size_of(dtype));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(combine(seed, i) >> (type & 7));
      items_.push_back({std::string(name_of(dtype)), dtype, bytes.data(), count, Role::parameter, nullptr, {}});
    }
  }
  EveryType(const EveryType&) = delete;
  EveryType& operator=(const EveryType&) = delete;

  std::vector<StateItem>& items() { return items_; }
  bool operator==(const EveryType& other) const { return memory_ == other.memory_; }

 private:
  std::array<std::vector<std::byte>, kDtypes> memory_;
  std::vector<StateItem> items_;
};

/// A ledger in the middle of an epoch, with ranges handed back.
inline step::Ledger busy_ledger() {
  step::Ledger ledger(1000);
  ledger.commit(1000);
  ledger.commit(600);
  ledger.give_back({{10, 20}, {100, 101}, {500, 600}});
  return ledger;
}

inline Position position_at(std::uint64_t step) {
  Position at;
  at.job = "mnist \"é\"\n";
  at.step = step;
  at.seed = 0xfedcba9876543210;
  at.lineage = 2;
  at.samples = 32 * step;
  at.digest = combine(7, step);
  at.workers = 3;
  at.local_batch = 32;
  at.global_batch = 96;
  at.ledger = busy_ledger();
  return at;
}

inline bool same(const Position& a, const Position& b) {
  return a.job == b.job && a.step == b.step && a.seed == b.seed && a.lineage == b.lineage && a.samples == b.samples &&
         a.digest == b.digest && a.workers == b.workers && a.local_batch == b.local_batch &&
         a.global_batch == b.global_batch && a.ledger == b.ledger;
}

/// Writes the state whose bytes are a function of the step.
inline Result<std::string> write_step(const std::string& dir, std::uint64_t step, std::size_t count = 7) {
  EveryType state(step, count);
  return write_checkpoint(dir, position_at(step), state.items());
}

/// True if it is what write_step wrote for its step.
inline bool is_as_written(const Checkpoint& checkpoint, std::size_t count = 7) {
  EveryType expected(checkpoint.position.step, count), found(~checkpoint.position.step, count);
  return restore(checkpoint, found.items()).ok() && found == expected &&
         same(checkpoint.position, position_at(checkpoint.position.step));
}

}  // namespace pliant::session
