#include "apps/pliant/host_supply.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "apps/pliant/slurm_provider.h"
#include "apps/pliant/supply_flags.h"
#include "apps/pliant/ticket.h"
#include "apps/pliant/trace_provider.h"

namespace pliant::cli {

HostSupply::HostSupply(net::Loop& loop, const JobRecord& record, std::string dir, agent::EventLog& log,
                       HostSupplyEvents events)
    : loop_(loop), record_(record), dir_(std::move(dir)), log_(log), events_(std::move(events)) {}

HostSupply::~HostSupply() = default;

Status HostSupply::open(Nanos grace) {
  const auto& plan = record_.plan;
  if (plan.supply.provider.empty()) return {};
  auto slurm = slurm_of(plan.supply.provider);
  if (!slurm.ok()) return slurm.error();
  if (auto ticket = read_ticket(ticket_file(dir_)); !ticket.ok()) return ticket.error();
  SlurmPlace place{dir_, record_.name, plan.pliant, grace};
  auto nodes = std::make_unique<SlurmProvider>(loop_, slurm.value(), std::move(place), provider_events());
  slurm_ = nodes.get();
  provider_ = std::move(nodes);
  if (!plan.supply.trace.empty()) {
    auto within = within_trace(loop_, plan.supply.trace, record_.started_at, std::move(provider_), provider_events());
    if (!within.ok()) return within.error();
    provider_ = std::move(within).value();
  }
  follow_price();
  return {};
}

ProviderEvents HostSupply::provider_events() {
  ProviderEvents events;
  events.on_notice = [this](const std::string& who, double seconds) {
    auto when = seconds > 0 ? fmt::format(" in {:.0f} s", seconds) : std::string();
    log_.note("notice", who + when);
    events_.say(fmt::format("pliant: {} will be taken away{}\n", who, when));
  };
  events.on_trouble = [this](const std::string& line) {
    log_.note("provider", line);
    events_.say(fmt::format("pliant: {}\n", line));
  };
  events.on_change = [this] { follow_price(); };
  return events;
}

void HostSupply::follow_price() {
  if (!provider_) return;
  if (auto price = provider_->price()) events_.on_price(*price);
}

void HostSupply::ask_for(std::uint32_t slots, bool begun, Nanos now) {
  if (!provider_) return;
  if (slots > asked_) {
    asked_ = slots;
    provider_->request(slots);
  }
  if (slots == asked_) idle_since_.reset();
  if (slots >= asked_ || !begun) return;
  if (!idle_since_) idle_since_ = now;
  if (now - *idle_since_ < kIdle) return;
  asked_ = slots;
  provider_->release(slots);
}

void HostSupply::ask_for_none() {
  if (provider_) provider_->request(0);
}

void HostSupply::end() {
  if (provider_) provider_->end();
}

bool HostSupply::gone() const {
  if (!slurm_) return true;
  return std::ranges::none_of(slurm_->jobs(), [](const SlurmJob& job) { return job.state == SlurmState::running; });
}

void HostSupply::follow_outputs() {
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

void HostSupply::poll(Console& console) {
  follow_outputs();
  for (auto& tail : tails_) tail.poll(console);
}

bool HostSupply::drain(Console& console) {
  bool all = true;
  for (auto& tail : tails_) all = tail.drain(console) && all;
  return all;
}

}  // namespace pliant::cli
