// What `pliant chaos` says at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/chaos_gaps.h"
#include "apps/pliant/chaos_plan.h"
#include "base/result.h"
#include "record/verify.h"

namespace pliant::cli::chaos {

/// An event that was tried.
struct Deed {
  std::uint64_t number = 0;
  Kind kind = Kind::kill;
  double t = 0;            ///< Unix seconds
  bool done = false;       ///< else it was skipped
  std::string words;       ///< to whom, or why not
  std::uint64_t step = 0;  ///< of the job, then
  std::optional<double> gap_ms{};
};

struct Report {
  std::string job;
  std::uint64_t seed = 0;
  std::vector<Deed> deeds;
  StepTimes steps;
  bool from_records = false;  ///< `steps` are exact
  bool interrupted = false;
  bool ended = false;    ///< the job, by the end of it all
  bool stuck = false;    ///< it makes no steps any more
  std::string ending{};  ///< of its last agent or worker, as far as that is known
  bool ending_good = true;
  std::uint64_t step = 0, steps_wanted = 0;
  std::string records{};
  std::optional<Result<record::Verification>> verification{};

  /// The job is alive or ended well, and its records prove it.
  bool good() const;
};

/// How the job's last worker ended, by the agents' and coordinators' events in a folder of records: nothing if nobody
/// knows.
struct LastWorker {
  std::string words;
  bool good = false;
};
std::optional<LastWorker> last_worker(const std::string& records);

/// Fills in each deed's gap.
void measure(Report& report);
/// For people: a table by kind, then how the job is.
std::string report_text(const Report& report);
std::string report_json(const Report& report);

}  // namespace pliant::cli::chaos
