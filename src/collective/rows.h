// Rows: what every rank tells all others at the end of a step, through the control segments; and, between hosts, that
// it has everything.
//
// A rank's rows are numbered, and there is room for two: whoever publishes row r + 1 has seen everybody's row r.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/control.h"

namespace pliant::collective {

/// Everything but mutex() REQUIRES that it is held: there is one exchange at a time.
class Rows {
 public:
  /// `all` is in the order of ranks, and filled before the first row.
  Rows(Control* own, const std::vector<const Control*>& all) : own_(own), all_(all) {}
  std::mutex& mutex() { return mutex_; }

  /// The own row is out from now on. REQUIRES: no more than kRowBytes.
  void publish(std::string_view row);
  /// The last exchange was left before everybody's rows were seen: another one would run ahead of those who lack.
  bool is_open() const { return open_; }
  /// Of the newest row of this rank.
  std::uint64_t number() const { return number_; }
  bool lacks(int rank) const { return all_[rank]->rows.load(std::memory_order_acquire) < number_; }
  /// Asked by a rank that has just published: of several that do so at once, the last one gets true.
  bool complete() const {
    return std::all_of(all_.begin(), all_.end(),
                       [&](const auto* control) { return control->rows.load(std::memory_order_seq_cst) >= number_; });
  }
  /// All were seen. By rank.
  std::vector<std::string> take();
  /// The same for an exchange that a fence has interrupted; nothing if there is none, or somebody's row is missing.
  std::optional<std::vector<std::string>> settle();
  /// A rank's row in the exchange that a fence interrupted, or in what would have been the next one.
  std::optional<std::string> published_by(int rank) const;

  /// This rank has everything.
  void confirm() { own_->confirmed.store(++confirmed_, std::memory_order_seq_cst); }
  bool all_confirmed() const {
    return std::all_of(all_.begin(), all_.end(), [&](const auto* control) {
      return control->confirmed.load(std::memory_order_acquire) >= confirmed_;
    });
  }

 private:
  Control* const own_;
  const std::vector<const Control*>& all_;
  std::mutex mutex_;
  std::uint64_t number_ = 0;
  std::uint64_t confirmed_ = 0;
  bool open_ = false;  // own row is out, the others' were not seen
};

}  // namespace pliant::collective
