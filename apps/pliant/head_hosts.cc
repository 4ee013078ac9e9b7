// The head of a job on several hosts: how it leads to them.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/head.h"
#include "apps/pliant/join.h"
#include "apps/pliant/ticket.h"

namespace pliant::cli {
namespace {

constexpr std::size_t kLastWords = 5;

/// Somebody wanted it to end.
bool was_told_to(const Ending& ending) {
  return ending.signal == SIGTERM || ending.code == 128 + SIGTERM || ending.code == 128 + SIGINT;
}

/// Its agent has not ended by itself. What leads to it says so by a signal if it is the agent, with 128 + N as shells
/// and srun do, or with 255 as ssh does, whether the agent was killed or the way was lost. An agent that ended with the
/// code of a worker that failed may look the same: then there is nothing left where it was.
bool no_last_word(const Ending& ending) {
  return !was_told_to(ending) && (ending.unknown || ending.signal || ending.code > 128);
}

}  // namespace

void Head::add_host(const HostSlots& place) {
  auto& host = hosts_.emplace_back(place, job_.path());
  auto known = std::ranges::find_if(record().hosts, [&](const HostRecord& each) { return each.name == place.name; });
  if (known != record().hosts.end())
    take_up(host, known->process);
  else
    lead_to(host);
}

/// The command that starts the host's agent there; here, if this is the host.
Result<SpawnOptions> Head::way_to(const LedHost& host) const {
  auto words = is_this_host(host.name()) ? std::vector<std::string>() : words_of(record().plan.via, host.name());
  auto program = words.empty() ? Result<std::string>(record().plan.pliant) : find_program(words[0]);
  if (!program.ok()) return program.error();
  for (const std::string& word : {record().plan.pliant, std::string("run"), std::string("--join=-"),
                                  "--host=" + host.name(), fmt::format("--slots={}", host.place().slots)})
    words.push_back(word);
  SpawnOptions spawn;
  spawn.path = program.value();
  spawn.argv = std::move(words);
  spawn.env = environment_;
  spawn.in = ticket_file(job_.path());
  spawn.out = host.output("out");
  spawn.err = host.output("err");
  spawn.append = host.was_led_to();
  getrlimit(RLIMIT_NOFILE, &spawn.files);
  return spawn;
}

void Head::lead_to(LedHost& host) {
  host.call_off();
  bool first = !host.process();
  auto spawn = way_to(host);
  auto process = spawn.ok() ? WatchedProcess::spawn(spawn.value()) : Result<WatchedProcess>(spawn.error());
  if (!process.ok()) {
    lead_.set_failure(process.error().message);
    say(fmt::format("pliant: host {}: {}\n", host.name(), lead_.failure()));
    return give_up_on(host);
  }
  host.led_by(std::move(process).value(), clock_.now());
  job_.set_host({host.name(), host.process()->id()});
  events_.note("host", fmt::format("{}: process {}", host.name(), host.process()->id().pid));
  watch(host, !first);
}

void Head::take_up(LedHost& host, const ProcessId& process) {
  auto taken = WatchedProcess::take_up(process);
  if (!taken.ok()) return lead_to(host);
  host.led_by(std::move(taken).value(), Nanos(0));
  watch(host, true);
}

void Head::watch(LedHost& host, bool from_now) {
  loop_.watch(host.process()->pidfd(), [this] { reap(); });
  for (const auto& error : host.follow_output(from_now)) say(fmt::format("pliant: {}\n", error.message));
}

void Head::reap() {
  for (auto& host : hosts_) {
    if (!host.process() || !host.process()->reap()) continue;
    loop_.unwatch(host.process()->pidfd());
    on_end(host);
  }
}

void Head::on_end(LedHost& host) {
  auto ending = *host.process()->ending();
  const auto& name = host.name();
  events_.note("host", fmt::format("{}: {}", name, ending.words()));
  if (!lead_.running() || !host.wanted()) return on_last_end(host, ending);
  if (was_told_to(ending)) {
    say(fmt::format("pliant: host {} has left the job\n", name));
    return give_up_on(host);
  }
  int failures = host.failed(clock_.now());
  auto words = last_lines(host.output("err"), kLastWords);
  auto failure = fmt::format("host {}: {}", name, ending.words());
  for (const auto& line : words) failure += "\n    " + line;
  lead_.set_failure(std::move(failure));
  if (host.hopeless() && !lead_.word().has_begun()) return give_up_on(host);
  host.try_again_later(clock_.now(), lead_.word().has_begun());
  if (failures == 1 && ending.code != kAgentThere)
    say(fmt::format("pliant: host {}: its agent has ended ({}); trying again\n", name, ending.words()));
}

/// The job ends, or goes on without that host.
void Head::on_last_end(LedHost& host, const Ending& ending) {
  // The workers of an agent that is gone run on, or have ended and nobody has told the coordinator how. One that is
  // there behind a way that was lost has yet to end.
  bool left_something = no_last_word(ending) || ending.code == kAgentThere;
  if (host.wanted() && left_something && !countdown_.told()) {
    host.failed(clock_.now());
    return host.try_again_later(clock_.now(), true);
  }
  if (!ending.good()) lead_.on_bad_end(ending.exit_status());
}

/// Can the others do without it?
void Head::give_up_on(LedHost& host) {
  host.give_up();
  auto needed = lead_.word().has_begun() ? 1 : record().plan.start;
  if (slots() >= needed || !record().plan.discovery.empty()) return;
  if (lead_.end()) stop_all(wire::Stopping::in_order);
}

std::uint32_t Head::slots() const {
  std::uint32_t sum = 0;
  for (const auto& host : hosts_) sum += host.slots();
  return sum;
}

bool Head::all_gone() const {
  // It is too late to wait for the supply once those who lead to hosts were told to end.
  return (supply_.gone() || countdown_.told()) &&
         std::ranges::none_of(hosts_, [](const LedHost& host) { return host.runs() || host.awaits(); });
}

/// What the script says now.
void Head::on_hosts(const std::vector<HostSlots>& places) {
  if (!lead_.running()) return;
  for (auto& host : hosts_) {
    bool named = std::ranges::any_of(places, [&](const auto& place) { return place.name == host.name(); });
    if (host.wanted() && !named) {
      say(fmt::format("pliant: host {} is not there any more: its workers leave\n", host.name()));
      keeper_->send(wire::Stop{host.name(), 0});
      host.give_up();
      host.call_off();
    } else if (!host.wanted() && named && !host.runs()) {
      host.want_again();
      lead_to(host);
    }
  }
  for (const auto& place : places) {
    auto same = [&](const LedHost& host) { return host.name() == place.name; };
    if (std::ranges::any_of(hosts_, same)) continue;
    if (!hosts_.empty()) say(fmt::format("pliant: host {} is new: {} slots\n", place.name, place.slots));
    add_host(place);
  }
  follow_slots();
}

/// As many workers as slots; but those who leave a host take their places with them, and are waited for.
void Head::follow_slots() {
  bool somebody_leaves = std::ranges::any_of(hosts_, [](const LedHost& host) { return !host.wanted() && host.runs(); });
  auto wanted = std::clamp(slots(), record().plan.least, record().plan.most);
  if (options_.follows_slots && !somebody_leaves && slots() > 0 && wanted != lead_.word().state().wanted)
    keeper_->send(wire::Resize{wanted});
}

}  // namespace pliant::cli
