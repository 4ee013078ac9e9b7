#include "apps/pliant/slot_supply.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/pliant/command.h"
#include "apps/pliant/local_provider.h"
#include "apps/pliant/trace_provider.h"

namespace pliant::cli {

Status SlotSupply::open() {
  slots_ = record_.is_part() ? record_.host.slots : static_cast<std::uint32_t>(wire::kMaxMembers);
  std::unique_ptr<Provider> here = std::make_unique<LocalProvider>(slots_, [this](auto slots) { set(slots); });
  auto all = slots_;
  if (!record_.plan.supply.trace.empty()) {
    ProviderEvents events;
    events.on_notice = [this](const std::string& who, double) {
      log_.note("notice", who);
      events_.say(fmt::format("pliant: the trace takes {} away\n", who));
    };
    events.on_trouble = [this](const std::string& line) {
      log_.note("provider", line);
      events_.say(fmt::format("pliant: {}\n", line));
    };
    events.on_change = [this] { follow_price(); };
    auto within =
        within_trace(loop_, record_.plan.supply.trace, record_.started_at, std::move(here), std::move(events));
    if (!within.ok()) return within.error();
    here = std::move(within).value();
  }
  provider_ = std::move(here);
  provider_->request(all);
  follow_price();
  return {};
}

void SlotSupply::watch_for_notice() {
  const auto& url = record_.plan.supply.notice_url;
  if (url.empty()) return;
  auto tell = [this](const std::string& line) { events_.say(fmt::format("pliant: {}{}\n", record_.where(), line)); };
  auto parsed = parse_notice_url(url);
  if (!parsed.ok()) return tell(parsed.error().message);
  notices_.emplace(
      loop_, parsed.value(), [this](const SpotNotice& notice) { on_notice(notice); }, tell);
}

/// As if somebody had said SIGTERM; whoever has not left in time goes with the machine.
void SlotSupply::on_notice(const SpotNotice& notice) {
  auto when = notice.seconds ? fmt::format(" in {:.0f} s", *notice.seconds) : std::string();
  log_.note("notice", notice.words + when);
  events_.say(fmt::format("pliant: {}this machine will be taken away{} ({}): its workers leave\n", record_.where(),
                          when, printable(notice.words)));
  events_.on_notice();
}

void SlotSupply::follow_price() {
  if (auto price = provider_->price()) events_.on_price(*price);
}

void SlotSupply::set(std::uint32_t slots) {
  auto least = record_.is_part() ? 0 : record_.plan.least;
  if (slots < least && !std::exchange(told_of_least_, true))
    events_.say(fmt::format("pliant: {} worker{} could be had, but the job has at least {} (--min): it keeps them\n",
                            slots, slots == 1 ? "" : "s", least));
  if (slots >= least) told_of_least_ = false;
  slots_ = std::max(slots, least);
  events_.on_slots();
}

}  // namespace pliant::cli
