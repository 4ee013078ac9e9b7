// The job's secret, and proof that somebody knows it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pliant::net {

/// HMAC-SHA256.
using Mac = std::array<std::uint8_t, 32>;
/// Takes the same time wherever they differ.
bool equal(const Mac& a, const Mac& b);

/// A short file's text. Code::refused unless it is a regular file of this user's that nobody else can read;
/// Code::invalid if it is longer than `most`.
Result<std::string> read_private(const std::string& path, std::size_t most);

/// 32 random bytes that every process of a job knows and nobody else. Written as 64 hexadecimal digits and a newline.
/// It is never in an argument, an environment variable or a log. Copies share one page of memory, which is in no core
/// dump and, where the kernel allows that, in no swap; it is erased with the last of them.
class Secret {
 public:
  static Secret random();
  /// From a file that is private (above).
  static Result<Secret> from_file(const std::string& path);
  /// From a descriptor, to its end.
  static Result<Secret> from_descriptor(int fd);
  static Result<Secret> from_text(std::string_view text);
  /// Makes the file, 0600; Code::io if it is there already.
  Status save(const std::string& path) const;
  /// As it is written, without the newline: for private files only.
  std::string text() const;

  /// Of the parts, each with its length, so that two different lists of parts never give one text.
  Mac sign(std::span<const std::span<const std::uint8_t>> parts) const;

 private:
  using Bytes = std::array<std::uint8_t, 32>;
  explicit Secret(Bytes bytes);  // erases its argument, as far as it can
  std::shared_ptr<const Bytes> bytes_;
};

}  // namespace pliant::net
