#include "apps/pliant/status_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "apps/pliant/command.h"

namespace pliant::cli {
namespace {

constexpr std::string_view kGap = "  ";

std::string out_of(std::string_view name, std::uint64_t value, std::uint64_t total) {
  return total ? fmt::format("{} {}/{}", name, value, total) : fmt::format("{} {}", name, value);
}

std::string workers_text(const Snapshot& now) {
  auto total = fmt::format("{} worker{}", now.workers, now.workers == 1 ? "" : "s");
  return now.alive == now.workers ? total : fmt::format("{} of {}", now.alive, total);
}

/// Characters, not bytes.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string> fields_of(const Snapshot& now) {
  std::vector<std::string> fields;
  if (now.phase != "running" || !now.progress) fields.push_back(now.phase);
  if (now.progress) {
    const auto& seen = *now.progress;
    fields.push_back(out_of("step", seen.step, seen.steps));
    if (seen.epochs || seen.epoch) fields.push_back(out_of("epoch", epoch_for_people(seen), seen.epochs));
    if (std::isfinite(seen.samples_per_second) && seen.samples_per_second > 0)
      fields.push_back(format_rate(seen.samples_per_second) + " samples/s");
    if (!std::isnan(seen.loss)) fields.push_back("loss " + format_loss(seen.loss));
  }
  fields.push_back(workers_text(now));
  fields.push_back(format_span(seconds(now.elapsed)));
  if (now.seconds_left) fields.push_back(format_span(*now.seconds_left) + " left");
  if (now.progress && !now.progress->text.empty()) fields.push_back(printable(now.progress->text));
  return fields;
}

}  // namespace

std::string render_line(const Snapshot& now, int columns) {
  auto room = static_cast<std::size_t>(std::max(columns, 0));
  std::string line;
  std::size_t used = 0;
  for (const auto& field : fields_of(now)) {
    auto more = width(field) + (line.empty() ? 0 : kGap.size());
    if (used + more > room) break;
    if (!line.empty()) line += kGap;
    line += field;
    used += more;
  }
  return line;
}

std::uint64_t epoch_for_people(const wire::Progress& progress) {
  auto next = progress.epoch + 1;
  return progress.epochs ? std::min(next, progress.epochs) : next;  // after the last one there is no next
}

std::string format_rate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "-";
  if (per_second >= 999'500) return fmt::format("{:.3g}M", per_second / 1e6);
  if (per_second >= 9'999.5) return fmt::format("{:.1f}k", per_second / 1e3);
  return per_second < 9.95 ? fmt::format("{:.1f}", per_second) : fmt::format("{:.0f}", per_second);
}

std::string format_loss(double loss) {
  if (std::isnan(loss)) return "-";
  auto size = std::fabs(loss);
  if (loss == 0 || (size >= 1e-3 && size < 1e5)) return fmt::format("{:.4f}", loss);
  return fmt::format("{:.3e}", loss);
}

void Pace::on_progress(Nanos now, const wire::Progress& progress) {
  steps_ = progress.steps;
  // A step that goes back is another loop of the program: what was learned no longer holds.
  if (!first_ || progress.step < last_.step) first_ = Mark{now, progress.step};
  if (!first_ || progress.step != last_.step || last_.at < first_->at) last_ = Mark{now, progress.step};
}

std::optional<double> Pace::seconds_left(Nanos now) const {
  if (!first_ || steps_ == 0 || last_.step <= first_->step) return std::nullopt;
  if (last_.step >= steps_) return 0.0;
  auto per_step = seconds(last_.at - first_->at) / static_cast<double>(last_.step - first_->step);
  auto left = per_step * static_cast<double>(steps_ - last_.step) - seconds(now - last_.at);
  return std::max(left, 0.0);
}

}  // namespace pliant::cli
