// A job's ledger, as whoever runs the job keeps it from what the coordinator says: who does what at which price, and
// how fast the job was at each size. Pure: no clock, no file. Times are seconds from any origin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scale/bill.h"
#include "wire/messages.h"

namespace pliant::cli {

/// Of a worker's hour, by price class; "" is for those that are not named.
using Prices = std::map<std::string, double>;
/// "0.9" or "spot=0.3,on-demand=0.9": Code::invalid says what is wrong.
Result<Prices> parse_prices(const std::string& text);

class Account {
 public:
  explicit Account(Prices prices = {}) : prices_(std::move(prices)) {}

  /// What an earlier process has counted.
  void carry_over(const std::vector<scale::BillLine>& lines) { bill_.carry_over(lines); }
  void on_state(double now, const wire::JobState& state);
  void on_progress(double now, const wire::Progress& progress);
  /// Somebody who knows says what a worker of no named class costs from now on.
  void set_price(double now, double per_hour);

  std::vector<scale::BillLine> lines(double now) const { return bill_.lines(now); }
  /// For people: what it has cost, and what fixed sizes would have. Empty if nobody ever trained.
  std::vector<std::string> words(double now) const;

 private:
  void price(double now, const std::string& kind);

  Prices prices_;
  scale::Bill bill_;
  std::vector<std::string> unpriced_;  // classes that nobody has named a price for

  struct Mark {
    double at = 0;
    std::uint64_t samples = 0;
  };
  std::uint64_t view_ = 0;
  int workers_ = 0;
  std::optional<Mark> last_, first_;  // of this view; of all
  std::uint64_t samples_ = 0;         // the newest word
  struct Stretch {
    double seconds = 0, samples = 0;
  };
  std::map<int, Stretch> stretches_;  // by number of workers
};

}  // namespace pliant::cli
