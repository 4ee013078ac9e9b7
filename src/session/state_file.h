// state.safetensors on both ways: a whole file in memory that goes to the disk, and a file read back into tensors.
#pragma once

#include <pliant/pliant.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/checkpoint.h"
#include "session/safetensors.h"

namespace pliant::session {

/// What a file must be. The digest is a chain over the file: the header (with its length), then each tensor.
struct FileSeal {
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;
  bool operator==(const FileSeal&) const = default;
};

/// A copy of the state, laid out as the file will be.
class StateImage {
 public:
  /// Copies the items into one piece of memory, which is kept for the next time. `step` goes into the file's metadata.
  Status fill(const std::vector<StateItem>& items, std::uint64_t step);
  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }
  /// Reads all of it: seconds for tens of gigabytes.
  FileSeal seal() const;

 private:
  Status reserve(std::size_t size);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t header_size_ = 0;
  std::vector<TensorPlace> places_;  // in the order of the data
};

/// Reads the file and holds it to its seal. Errors name the path. Takes no more memory than the file has bytes.
Result<std::map<std::string, Checkpoint::Tensor>> read_state(const std::string& path, const FileSeal& seal);

/// A regular file of at most `most` bytes as text. Errors name the path.
Result<std::string> read_text(const std::string& path, std::uint64_t most);

}  // namespace pliant::session
