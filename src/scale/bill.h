// The ledger of a job: what its workers cost, by what they do and what they are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scale/throughput.h"

namespace pliant::scale {

/// What a worker does that has to be paid.
enum class Phase : std::uint8_t { starting, training, waiting };
inline constexpr std::array<const char*, 3> kPhaseNames = {"starting", "training", "waiting"};
/// How many do what.
using Crew = std::array<std::uint32_t, 3>;

/// Workers of one price class: "spot", "on-demand", or "" where there is only one.
struct BillLine {
  std::string kind;
  std::array<double, 3> seconds{};  ///< worker-seconds, by phase
  double money = 0;
  double worker_seconds() const { return seconds[0] + seconds[1] + seconds[2]; }
};

/// Times are seconds from any origin, and never go back.
class Bill {
 public:
  /// From now on, a worker's hour of this class costs so much.
  void set_price(double now, const std::string& kind, double per_hour);
  /// From now on there are so many of this class.
  void set_crew(double now, const std::string& kind, const Crew& crew);
  /// Nobody of any other class is there any more.
  void only(double now, const std::vector<std::string>& kinds);
  /// What was counted before, by somebody else.
  void carry_over(const std::vector<BillLine>& lines);

  /// Until now, by class.
  std::vector<BillLine> lines(double now) const;
  BillLine total(double now) const;
  bool priced() const { return !prices_.empty(); }
  /// "1.25 worker-hours (96 % training, 3 % starting, 1 % waiting), 0.62 in money"
  std::string text(double now) const;

 private:
  struct Account {
    Crew crew{};
    double since = 0;
    BillLine line;
  };
  void settle(double now, Account& account) const;
  Account& account_of(const std::string& kind, double now);

  std::map<std::string, Account> accounts_;  // by class
  std::map<std::string, double> prices_;     // of an hour
};

/// What the same samples would have taken with the same number of workers all along.
struct FixedSize {
  int workers = 0;
  double seconds = 0;
  double worker_seconds = 0;
  std::optional<double> money{};  ///< at what a worker-second has cost in the mean
};
std::vector<FixedSize> fixed_sizes(const Throughputs& seen, double samples, const BillLine& paid, bool priced);

/// "90.0 worker-seconds", "25.0 worker-minutes", "3.12 worker-hours".
std::string format_work(double seconds);

}  // namespace pliant::scale
