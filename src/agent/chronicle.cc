#include "agent/chronicle.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace pliant::agent {
namespace {

constexpr std::uint64_t kMostRefusals = 1000;  // strangers shall not fill the disk

std::string words_of(const membership::View& view) {
  auto text = fmt::format("epoch {}, term {}, workers", view.epoch, view.term);
  for (const auto& member : view.members) text += fmt::format(" {}", member.id);
  return text;
}

}  // namespace

void Chronicle::note(const std::string& what, std::optional<std::uint64_t> worker, const std::string& text) {
  if (worker)
    log_.note(what, *worker, text);
  else
    log_.note(what, text);
}

void Chronicle::begun(pid_t pid, const std::optional<membership::Memory>& memory) {
  log_.note("begun", fmt::format("process {}{}", pid, memory ? ", from an earlier one's note" : ""));
}

void Chronicle::agent_came(pid_t pid, const std::string& host) {
  log_.note("agent", host.empty() ? fmt::format("process {}", pid) : "on host " + host);
}

void Chronicle::joined(const wire::Join& join) {
  auto place = join.view.epoch ? fmt::format(", in view {}", join.view.epoch) : std::string();
  log_.note("joined", join.id, fmt::format("process {}{}", join.pid, place));
}

void Chronicle::refused(std::optional<std::uint64_t> worker, pid_t pid, const std::string& reason) {
  if (++refusals_ > kMostRefusals) return;
  note("refused", worker, fmt::format("process {}: {}", pid, reason));
}

void Chronicle::heard(std::optional<std::uint64_t> worker, bool from_agent, const wire::Message& message) {
  auto outcome = [](std::uint8_t byte) { return std::string(name_of(wire::outcome_in(byte))); };
  if (const auto* bye = std::get_if<wire::Bye>(&message); bye && worker)
    log_.note("goodbye", *worker, outcome(bye->outcome));
  if (const auto* loop = std::get_if<wire::LoopEnded>(&message); loop && worker)
    log_.note("loop", *worker, fmt::format("{} after {} steps", outcome(loop->outcome), loop->step));
  if (const auto* resize = std::get_if<wire::Resize>(&message))
    note("resize", worker, fmt::format("{} workers", resize->workers));
  if (const auto* replace = std::get_if<wire::Replace>(&message); replace && worker)
    log_.note("replace", replace->id, fmt::format("worker {} says that it is slow", *worker));
  if (const auto* ended = std::get_if<wire::Ended>(&message); ended && from_agent) {
    log_.note("ended", ended->id, ended->words);
    if (ended->view.epoch) log_.note("last view", ended->id, fmt::format("epoch {}", ended->view.epoch));
  }
}

void Chronicle::looked_for_checkpoint(const Result<std::uint64_t>& newest) {
  log_.note("rescue", newest.ok() ? fmt::format("the checkpoint of step {}", newest.value()) : newest.error().message);
}

void Chronicle::says(std::optional<std::uint64_t> worker, const wire::Message& message) {
  if (const auto* answer = std::get_if<wire::Answer>(&message))
    note("answer", worker, fmt::format("{}: {}", answer->ok ? "yes" : "no", answer->text));
  if (const auto* start = std::get_if<wire::Start>(&message)) log_.note("start", start->id, "");
  const auto* plan = std::get_if<wire::Plan>(&message);
  if (!plan) return;
  auto view = membership::view_from(plan->view);
  if (!view.ok() || std::exchange(plan_, view.value().hash()) == view.value().hash()) return;  // it goes to many
  log_.note("plan", words_of(view.value()));
}

void Chronicle::look_at(const membership::Coordinator& coordinator) {
  const auto& view = coordinator.view();
  if (coordinator.formed() && std::exchange(view_, view.hash()) != view.hash()) log_.note("view", words_of(view));
  bool over = coordinator.over();
  if (!std::exchange(over_, over) && over) log_.note("over", std::string(name_of(coordinator.verdict())));
}

}  // namespace pliant::agent
