#include "apps/pliant/status_reporter.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "apps/pliant/job_dir.h"
#include "apps/pliant/status_file.h"
#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kBetweenDraws = 100ms;
constexpr Nanos kBetweenLines = 5s;
constexpr Nanos kBetweenFiles = 250ms;

bool due(const std::optional<Nanos>& last, Nanos now, Nanos period) { return !last || now - *last >= period; }

StatusMode settle(StatusMode mode, const Console& console) {
  if (mode != StatusMode::automatic) return mode;
  bool live = console.is_terminal(Stream::err) && env("TERM").value_or("dumb") != "dumb";
  return live ? StatusMode::line : StatusMode::plain;
}

std::string plain_line(const Snapshot& snapshot) {
  return fmt::format("pliant: {}\n", render_line(snapshot, std::numeric_limits<int>::max()));
}

}  // namespace

StatusReporter::StatusReporter(Console& console, StatusMode mode, std::string job_dir)
    : console_(console), mode_(settle(mode, console)), job_dir_(std::move(job_dir)) {}

void StatusReporter::update(Nanos now, const Snapshot& snapshot) {
  if (mode_ == StatusMode::line) {
    if (due(drawn_at_, now, kBetweenDraws)) {
      line_ = render_line(snapshot, console_.columns() - 1);
      drawn_at_ = now;
    }
    console_.show(line_);
  }
  bool news = snapshot.phase == "running" && snapshot.progress && (!told_ || told_->step != snapshot.progress->step);
  if (mode_ == StatusMode::plain && news && due(told_at_, now, kBetweenLines)) {
    console_.write(Stream::err, plain_line(snapshot));
    told_ = snapshot.progress;
    told_at_ = now;
  }
  if (due(written_at_, now, kBetweenFiles)) {
    written_at_ = now;
    write_file(snapshot);
  }
}

void StatusReporter::finish(const std::string& job, Outcome outcome, const Snapshot& snapshot) {
  console_.erase();
  if (mode_ == StatusMode::off || !(snapshot.begun || snapshot.progress)) return;
  auto how = outcome == Outcome::finished  ? "is done"
             : outcome == Outcome::stopped ? "was stopped before it was done"
                                           : "has failed";
  if (!snapshot.progress)  // this process has not been there for long
    return console_.write(Stream::err, fmt::format("pliant: job '{}' {}\n", job, how));
  auto whole = snapshot;  // that the workers have ended is the point of the line, not its news
  whole.phase = "running";
  whole.workers = whole.alive = static_cast<int>(snapshot.progress->workers);
  whole.seconds_left.reset();
  console_.write(Stream::err, fmt::format("pliant: job '{}' {}: {}\n", job, how,
                                          render_line(whole, std::numeric_limits<int>::max())));
}

void StatusReporter::present(const std::vector<std::string>& bill, agent::EventLog& events) {
  for (const auto& line : bill) {
    events.note("bill", line);
    if (mode_ != StatusMode::off) console_.write(Stream::err, fmt::format("pliant: {}\n", line));
  }
}

void StatusReporter::write_file(const Snapshot& snapshot) {
  auto still = snapshot;
  still.elapsed = Nanos(0);
  still.at = 0;
  still.seconds_left.reset();
  still.bill.clear();
  auto news = status_text(still);
  if (news == written_) return;  // only the clock has moved
  written_ = std::move(news);
  auto written = write_atomically(job_dir_ + kStatusFile, status_text(snapshot));
  if (!written.ok()) log::debug("{}", written.error().message);
}

}  // namespace pliant::cli
