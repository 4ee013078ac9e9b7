// The head's second part: hosts that a provider gives and takes, and what all of it costs.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/pliant/head.h"
#include "apps/pliant/slurm_provider.h"
#include "apps/pliant/status_file.h"
#include "apps/pliant/ticket.h"
#include "apps/pliant/trace_provider.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kIdle = 10s;  // that slots are without use before they are given back

}  // namespace

Status Head::open_supply() {
  if (auto seen = read_status(dir_.path())) account_.carry_over(seen->bill);
  const auto& plan = record_.plan;
  if (plan.provider.empty()) return {};
  auto slurm = slurm_of(plan.provider);
  if (!slurm.ok()) return slurm.error();
  auto ticket = read_ticket(ticket_file(dir_.path()));
  if (!ticket.ok()) return ticket.error();
  SlurmPlace place{dir_.path(), record_.name, plan.pliant, ticket_text(ticket.value()), Nanos(options_.grace)};
  auto nodes = std::make_unique<SlurmProvider>(loop_, slurm.value(), std::move(place), supply_events());
  slurm_ = nodes.get();
  provider_ = std::move(nodes);
  if (!plan.trace.empty()) {
    auto within = within_trace(loop_, plan.trace, record_.started_at, std::move(provider_), supply_events());
    if (!within.ok()) return within.error();
    provider_ = std::move(within).value();
  }
  follow_price();
  ask_provider();
  return {};
}

ProviderEvents Head::supply_events() {
  ProviderEvents events;
  events.on_notice = [this](const std::string& who, double seconds) {
    auto when = seconds > 0 ? fmt::format(" in {:.0f} s", seconds) : std::string();
    events_.note("notice", who + when);
    say(fmt::format("pliant: {} will be taken away{}\n", who, when));
  };
  events.on_trouble = [this](const std::string& line) {
    events_.note("provider", line);
    say(fmt::format("pliant: {}\n", line));
  };
  events.on_change = [this] { follow_price(); };
  return events;
}

void Head::follow_price() {
  if (!provider_) return;
  if (auto price = provider_->price()) account_.set_price(seconds(clock_.now()), *price);
}

/// More at once, fewer only when they have been without use for a while.
void Head::ask_provider() {
  if (!provider_ || phase_ != Phase::running) return;
  auto wanted = state_.wanted + record_.plan.spare;
  if (wanted > asked_) {
    asked_ = wanted;
    provider_->request(wanted);
  }
  auto now = clock_.now();
  if (wanted == asked_) idle_since_.reset();
  if (wanted >= asked_ || !state_.view.epoch) return;
  if (!idle_since_) idle_since_ = now;
  if (now - *idle_since_ < kIdle) return;
  asked_ = wanted;
  provider_->release(wanted);
}

/// Nobody of what it has given works for this job any more, or it is too late to wait for that.
bool Head::provider_gone() const {
  if (!slurm_ || kill_at_) return true;
  return std::ranges::none_of(slurm_->jobs(), [](const SlurmJob& job) { return job.state == SlurmState::running; });
}

/// What the agents of the provider's hosts write.
void Head::follow_outputs() {
  if (!slurm_) return;
  for (const auto& path : slurm_->outputs())
    for (auto stream : {Stream::out, Stream::err}) {
      auto file = path + (stream == Stream::out ? ".out" : ".err");
      if (struct stat seen{}; followed_.contains(file) || stat(file.c_str(), &seen) != 0) continue;
      followed_.insert(file);
      auto tail = OutputTail::open(file, stream, "", false);
      if (tail.ok()) tails_.push_back(std::move(tail).value());
    }
}

}  // namespace pliant::cli
