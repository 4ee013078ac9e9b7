// Messages about views that this worker has not entered yet. They hold descriptors: what will never be asked for is
// dropped.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/fd.h"
#include "wire/messages.h"

namespace pliant::collective {

/// A message between workers, with the segments that it carries.
struct Letter {
  std::uint64_t from = 0;
  wire::Message message;
  std::vector<Fd> fds;
};

/// The hash of the view that a message is about; 0 if it is about none.
std::uint64_t view_of(const wire::Message& message);

class Parked {
 public:
  static constexpr std::size_t kMostLetters = 8192;
  /// Views of one sender. Whoever enters another one has left the one before, so a few are enough; and nobody can push
  /// out what others have sent.
  static constexpr std::size_t kMostViewsEach = 64;

  /// Keeps a letter that names a view, unless that view is older than the newest that was taken, or the sender did not
  /// enter it before: then it is of a view that this worker has left.
  void park(Letter letter);
  /// What came about a view, in the order of coming. Views with smaller numbers are of no interest from now on.
  std::vector<Letter> take(std::uint64_t view_hash, std::uint64_t number);
  /// The sender is dead.
  void drop_from(std::uint64_t id);
  std::size_t size() const { return size_; }

 private:
  struct View {
    std::uint64_t number = 0;  // ViewNotice::epoch
    std::vector<Letter> letters;
  };
  void drop_oldest();
  void drop_oldest_of(std::uint64_t id);
  void count();

  std::map<std::uint64_t, View> views_;  // by hash
  std::uint64_t newest_ = 0;             // number of the newest view that was taken
  std::size_t size_ = 0;                 // letters in all
};

}  // namespace pliant::collective
