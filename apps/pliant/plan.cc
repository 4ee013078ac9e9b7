#include "apps/pliant/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pliant/policy.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <utility>

#include "apps/pliant/trace_provider.h"
#include "base/clock.h"
#include "plan/measured.h"
#include "plan/simulation.h"
#include "plan/trace.h"

namespace pliant::cli {
namespace {

struct PlanFlags {
  std::string dir, trace, svg;
  std::vector<int> sizes{1, 2, 4, 8};
  std::vector<std::string> policies;
  double price = 0, samples = 0, start = 2, noise = 0;
  int from = 1, most = 0;
};

struct Row {
  std::string name;
  plan::Outcome out;
  bool best = false;  // nothing else is both faster and cheaper
};

/// Says how far a simulation is, should it take long and somebody be looking.
class Teller final : public Policy {
 public:
  explicit Teller(std::string what) : what_(std::move(what)) {}
  ~Teller() override {
    if (told_) fmt::print(stderr, "\r\033[K");
  }
  pliant::Action after_step(const StepReport& seen) override {
    if (!looked_at_ || seen.step % kBetweenLooks != 0 || clock_.now() - last_ < kBetweenWords) return keep();
    last_ = clock_.now();
    told_ = true;
    fmt::print(stderr, "\r\033[Kplanning {}: {:.1f} %", what_, 100 * seen.progress);
    return keep();
  }

 private:
  static constexpr std::uint64_t kBetweenLooks = 1 << 14;  // steps
  static constexpr Nanos kBetweenWords = std::chrono::milliseconds(500);

  SteadyClock clock_;
  const std::string what_;
  const bool looked_at_ = isatty(STDERR_FILENO) == 1;
  Nanos last_ = clock_.now();
  bool told_ = false;
};

std::string duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (seconds < 3600) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.2f} h", seconds / 3600);
}

void find_best(std::vector<Row>& rows) {
  auto cost = [](const Row& row) { return row.out.money > 0 ? row.out.money : row.out.worker_seconds; };
  for (auto& row : rows)
    row.best = row.out.finished && std::ranges::none_of(rows, [&](const Row& other) {
                 return other.out.finished && other.out.seconds <= row.out.seconds && cost(other) <= cost(row) &&
                        (other.out.seconds < row.out.seconds || cost(other) < cost(row));
               });
}

void print_rows(const std::vector<Row>& rows) {
  std::size_t wide = 7;
  for (const auto& row : rows) wide = std::max(wide, row.name.size());
  fmt::print("  {:<{}}  {:>10}  {:>12}  {:>10}  {}\n", "workers", wide, "time", "worker-hours", "money", "sizes");
  for (const auto& row : rows) {
    if (!row.out.finished) {
      fmt::print("  {:<{}}  never done: the trace has no capacity for it any more\n", row.name, wide);
      continue;
    }
    std::vector<int> sizes;
    for (const auto& change : row.out.changes) sizes.push_back(change.workers);
    bool many = sizes.size() > 12;
    if (many) sizes.resize(12);
    fmt::print("{} {:<{}}  {:>10}  {:>12.4g}  {:>10.4g}  {}{}\n", row.best ? "*" : " ", row.name, wide,
               duration(row.out.seconds), row.out.worker_seconds / 3600, row.out.money, fmt::join(sizes, " "),
               many ? " ..." : "");
  }
  fmt::print("* nothing here is both faster and cheaper\n");
}

/// Time against money, or against worker-seconds where nothing has a price.
std::string chart_of(const std::vector<Row>& rows) {
  constexpr double kWidth = 640, kHeight = 400, kLeft = 70, kRight = 150, kTop = 30, kBottom = 50;
  bool priced = std::ranges::any_of(rows, [](const Row& row) { return row.out.money > 0; });
  auto cost = [&](const Row& row) { return priced ? row.out.money : row.out.worker_seconds / 3600; };
  double longest = 0, dearest = 0;
  for (const auto& row : rows) {
    if (!row.out.finished) continue;
    longest = std::max(longest, row.out.seconds);
    dearest = std::max(dearest, cost(row));
  }
  auto x = [&](double seconds) { return kLeft + seconds / longest * (kWidth - kLeft - kRight); };
  auto y = [&](double money) { return kHeight - kBottom - money / dearest * (kHeight - kTop - kBottom); };
  auto svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n<path d=\"M{2},{3} V{4} H{5}\" fill=\"none\" "
      "stroke=\"#888\"/>\n",
      kWidth, kHeight, kLeft, kTop, kHeight - kBottom, kWidth - kRight);
  for (int i = 1; i <= 4; ++i) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x(longest * i / 4),
                       kHeight - kBottom + 18, duration(longest * i / 4));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n", kLeft - 6,
                       y(dearest * i / 4) + 4, dearest * i / 4);
  }
  std::vector<const Row*> line;
  for (const auto& row : rows) {
    if (!row.out.finished) continue;
    if (row.best) line.push_back(&row);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        x(row.out.seconds), y(cost(row)), row.best ? "#1b6ca8" : "#aaaaaa", x(row.out.seconds) + 7, y(cost(row)) + 4,
        row.name);
  }
  std::ranges::sort(line, {}, [](const Row* row) { return row->out.seconds; });
  std::string points;
  for (const auto* row : line) points += fmt::format("{:.1f},{:.1f} ", x(row->out.seconds), y(cost(*row)));
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#1b6ca8\"/>\n", points);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">time</text>"
      "<text x=\"{:.1f}\" y=\"18\">{}</text></svg>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 12, 8.0, priced ? "money" : "worker-hours");
  return svg;
}

plan::Job job_from(const plan::Measured& seen, const PlanFlags& flags) {
  plan::Job job;
  job.step = scale::fit(seen.shapes);
  job.corrections = plan::corrections_to(job.step, seen.shapes);
  job.samples = flags.samples > 0 ? flags.samples : seen.samples;
  job.local_batch = seen.local_batch;
  job.global_batch = seen.global_batch;
  job.noise_scale = flags.noise;
  job.start_seconds = flags.start;
  if (seen.stall_seconds > 0) job.change_seconds = seen.stall_seconds;
  job.most = std::max(flags.most, std::ranges::max(flags.sizes));
  return job;
}

Result<plan::Trace> trace_from(const PlanFlags& flags, int most) {
  if (flags.trace.empty()) return plan::Trace(most, flags.price);
  return read_trace(flags.trace);
}

Status plan_for(const PlanFlags& flags) {
  auto seen = plan::read_measured(flags.dir);
  if (!seen.ok()) return seen.error();
  auto job = job_from(seen.value(), flags);
  auto trace = trace_from(flags, job.most);
  if (!trace.ok()) return trace.error();
  std::vector<int> measured;
  for (const auto& shape : seen.value().shapes) measured.push_back(shape.workers);
  fmt::print("from {} steps at {} workers; {:.0f} samples, {:.0f} {}\n", seen.value().steps, fmt::join(measured, ", "),
             job.samples, std::max(job.global_batch, job.local_batch),
             job.global_batch > 0 ? "in a step" : "per worker and step");
  std::vector<Row> rows;
  for (int size : flags.sizes) rows.push_back({std::to_string(size), plan::simulate(job, trace.value(), size, {})});
  for (const auto& description : flags.policies) {
    auto policy = make_policy(description);
    Teller teller(printable(description));
    rows.push_back({description, plan::simulate(job, trace.value(), flags.from, {policy.get(), &teller})});
  }
  find_best(rows);
  print_rows(rows);
  if (flags.svg.empty()) return {};
  std::ofstream out(flags.svg);
  out << chart_of(rows);
  if (!out.flush()) return Error{Code::io, fmt::format("--svg {}: cannot be written", flags.svg)};
  return {};
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("plan", "What sizes and policies would take and cost, from a job's records");
  command->footer(
      "Fits a model of a step's time to the records of a job, and runs the job in a cluster that is\n"
      "not there: with each fixed size, and with the policies that a real job would have.\n\n"
      "Examples:\n  pliant plan records --sizes 1,2,4,8 --price 0.9\n"
      "  pliant plan records --trace spot.csv --policy autoscale:max=8 --svg pareto.svg");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("DIR", flags->dir, "Folder with the job's records ('pliant run --record')")->required();
  command->add_option("--sizes", flags->sizes, "Fixed numbers of workers")
      ->delimiter(',')
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--policy", flags->policies, "A policy, as 'pliant run' takes it; may be given several times");
  command->add_option("--from", flags->from, "Workers that a job with a policy begins with")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--max", flags->most, "The most workers; default: the largest of --sizes")
      ->check(CLI::Range(1, 100000));
  command->add_option("--price", flags->price, "Of a worker's hour")->check(CLI::NonNegativeNumber);
  command->add_option("--trace", flags->trace, "Capacity and prices over time: seconds,capacity,price")
      ->check(CLI::ExistingFile);
  command->add_option("--samples", flags->samples, "Of the whole job; default: as recorded")
      ->check(CLI::PositiveNumber);
  command->add_option("--start-seconds", flags->start, "Until a worker that was asked for is there")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--noise-scale", flags->noise, "Of the gradient, for goodput")->check(CLI::PositiveNumber);
  command->add_option("--svg", flags->svg, "Draw time against money there");
  command->callback([flags, &action] {
    action = [flags] {
      try {
        auto planned = plan_for(*flags);
        if (planned.ok()) return 0;
        fmt::print(stderr, "pliant plan: {}\n", printable(planned.error().message));
      } catch (const Failure& problem) {
        fmt::print(stderr, "pliant plan: {}\n", printable(problem.what()));
      }
      return 2;
    };
  });
}

}  // namespace pliant::cli
