// The agent's third part: how many slots it has, what happens to those who are too many, and what all of it costs.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"
#include "apps/pliant/command.h"
#include "apps/pliant/local_provider.h"
#include "apps/pliant/status_file.h"
#include "apps/pliant/trace_provider.h"

namespace pliant::cli {

Status Agent::open_supply() {
  slots_ = record_.is_part() ? record_.host.slots : static_cast<std::uint32_t>(wire::kMaxMembers);
  if (auto seen = read_status(dir_.path())) account_.carry_over(seen->bill);
  std::unique_ptr<Provider> here = std::make_unique<LocalProvider>(slots_, [this](auto slots) { set_slots(slots); });
  auto all = slots_;
  if (!record_.plan.trace.empty()) {
    ProviderEvents events;
    events.on_notice = [this](const std::string& who, double) { on_trace_notice(who); };
    events.on_trouble = [this](const std::string& line) {
      events_.note("provider", line);
      say(fmt::format("pliant: {}\n", line));
    };
    events.on_change = [this] { follow_price(); };
    auto within = within_trace(loop_, record_.plan.trace, record_.started_at, std::move(here), std::move(events));
    if (!within.ok()) return within.error();
    here = std::move(within).value();
  }
  provider_ = std::move(here);
  provider_->request(all);
  follow_price();
  return {};
}

void Agent::on_trace_notice(const std::string& who) {
  events_.note("notice", who);
  say(fmt::format("pliant: the trace takes {} away\n", who));
}

void Agent::watch_for_notice() {
  const auto& url = record_.plan.notice_url;
  if (url.empty()) return;
  auto parsed = parse_notice_url(url);
  if (!parsed.ok()) return say(fmt::format("pliant: {}{}\n", where(), parsed.error().message));
  notices_.emplace(
      loop_, parsed.value(), [this](const SpotNotice& notice) { on_notice(notice); },
      [this](const std::string& line) { say(fmt::format("pliant: {}{}\n", where(), line)); });
}

/// As if somebody had said SIGTERM; whoever has not left in time goes with the machine.
void Agent::on_notice(const SpotNotice& notice) {
  auto when = notice.seconds ? fmt::format(" in {:.0f} s", *notice.seconds) : std::string();
  events_.note("notice", notice.words + when);
  say(fmt::format("pliant: {}this machine will be taken away{} ({}): its workers leave\n", where(), when,
                  printable(notice.words)));
  if (phase_ == Phase::running) on_signal(SIGTERM);
}

void Agent::follow_price() {
  if (auto price = provider_->price()) account_.set_price(seconds(clock_.now()), *price);
}

/// Never fewer than the job must have: what a trace says was so once, this job runs now.
void Agent::set_slots(std::uint32_t slots) {
  auto least = record_.is_part() ? 0 : record_.plan.least;
  if (slots < least && !std::exchange(told_of_least_, true))
    say(fmt::format("pliant: {} worker{} could be had, but the job has at least {} (--min): it keeps them\n", slots,
                    slots == 1 ? "" : "s", least));
  if (slots >= least) told_of_least_ = false;
  slots_ = std::max(slots, least);
  if (!record_.is_part() && state_.view.epoch == 0 && slots_ < record_.plan.start)
    say(fmt::format("pliant: {} of {} workers can be had: the job waits (--min lets it begin with fewer)\n", slots_,
                    record_.plan.start));
  announce_slots();
  send_away_surplus();
}

void Agent::announce_slots() {
  if (keeper_ && keeper_->connected())
    keeper_->send(wire::AgentHello{record_.job_name(), record_.host.name, slots_, record_.plan.kind});
}

/// Those who only wait go first, then the youngest.
void Agent::send_away_surplus() {
  std::vector<Worker*> there;
  for (auto& worker : workers_.all())
    if (worker.process.running() && !worker.leave_by) there.push_back(&worker);
  std::ranges::sort(there, [this](const Worker* a, const Worker* b) {
    return std::pair(in_view(a->id), b->id) < std::pair(in_view(b->id), a->id);
  });
  for (auto surplus = there.size() > slots_ ? there.size() - slots_ : 0, i = std::size_t{0}; i < surplus; ++i) {
    there[i]->process.signal_group(SIGTERM);
    there[i]->leave_by = clock_.now() + options_.grace;
    events_.note("taken", there[i]->id, "its slot is not there any more");
  }
}

void Agent::kill_overdue() {
  for (const auto& worker : workers_.all())
    if (worker.leave_by && clock_.now() >= *worker.leave_by && worker.process.running())
      worker.process.signal_group(SIGKILL);
}

}  // namespace pliant::cli
