// The agent's own stdout and stderr, and the live status line on the latter.
//
// Never blocks and never changes the descriptors' flags, which others may share: what a terminal or pipe does not take
// now waits here, and full() asks the caller to stop feeding. A stream whose reader is gone swallows the rest.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace pliant::cli {

enum class Stream { out, err };

class Console {
 public:
  /// The descriptors stay the caller's.
  Console(int out, int err);

  /// Appends whole lines. The status line makes room for them.
  void write(Stream stream, std::string_view lines);
  /// Draws or redraws the status line; nothing happens if it already shows this text.
  void show(const std::string& status);
  /// Takes the status line away.
  void erase();
  /// Passes on as much as the streams take.
  void flush();

  bool full(Stream stream) const;
  bool idle() const;
  bool is_terminal(Stream stream) const;
  /// Columns of the terminal behind stderr.
  int columns() const;

 private:
  struct Output {
    int fd = -1;
    bool terminal = false;
    bool gone = false;
    std::string pending;
  };
  Output& output(Stream stream) { return outputs_[static_cast<std::size_t>(stream)]; }
  const Output& output(Stream stream) const { return outputs_[static_cast<std::size_t>(stream)]; }
  static void flush(Output& output);

  std::array<Output, 2> outputs_;
  std::string shown_;  // the status line on the screen; empty: none
};

}  // namespace pliant::cli
