// What a job is doing, as one line. Pure functions: no clock, no terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "scale/bill.h"
#include "wire/messages.h"

namespace pliant::cli {

struct Snapshot {
  std::string phase = "starting";  ///< starting, running, ending or stopping
  int workers = 0;
  int alive = 0;
  Nanos elapsed{0};
  std::optional<wire::Progress> progress;
  std::optional<double> seconds_left;
  double at = 0;                        ///< when this was so, in seconds since 1970
  std::vector<scale::BillLine> bill{};  ///< the ledger until then
  bool begun = false;                   ///< there was a view
};

/// "step 120/4690  epoch 3/10  12.3k samples/s  loss 0.4312  4 workers  0:42  1:23 left": as many whole fields as fit
/// into `columns`.
std::string render_line(const Snapshot& now, int columns);

/// The epoch in progress as people count them, from 1; on the wire the first is 0.
std::uint64_t epoch_for_people(const wire::Progress& progress);
/// "856", "12.3k" or "4.56M".
std::string format_rate(double per_second);
/// Four decimals, or an exponent where those would say nothing; "-" if it is not a number.
std::string format_loss(double loss);

/// Estimates the time left from the steps made since the first report.
class Pace {
 public:
  void on_progress(Nanos now, const wire::Progress& progress);
  /// Nothing until it is known how many steps there are and how fast they go.
  std::optional<double> seconds_left(Nanos now) const;

 private:
  struct Mark {
    Nanos at{0};
    std::uint64_t step = 0;
  };
  std::optional<Mark> first_;
  Mark last_;
  std::uint64_t steps_ = 0;
};

}  // namespace pliant::cli
