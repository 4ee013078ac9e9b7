#include "apps/pliant/slurm_idle.h"

#include <utility>

namespace pliant::cli {

SlurmIdle::SlurmIdle(net::Loop& loop, const SlurmOptions& options, const SlurmPlace& place,
                     std::vector<std::string> environment, Events events)
    : options_(options),
      environment_(std::move(environment)),
      events_(std::move(events)),
      sinfo_(loop, "sinfo", place.dir, place.patience) {}

void SlurmIdle::tick(bool may_look) {
  sinfo_.tick();
  auto now = clock_.now();
  bool due = now >= next_look_ || events_.running() != counted_running_;
  if (sinfo_.busy() || !due || looking_.waits(now) || !may_look) return;
  counted_running_ = events_.running();
  sinfo_.run(sinfo_words(options_), environment_, "",
             [this](const SlurmCommand::Answer& answer) { on_answer(answer); });
}

void SlurmIdle::on_answer(const SlurmCommand::Answer& answer) {
  next_look_ = clock_.now() + kPause;
  auto idle = answer.good ? parse_idle(answer.text, options_.partition.empty()) : Error{Code::io, answer.words};
  auto before = std::exchange(capacity_, std::nullopt);
  if (idle.ok()) {
    capacity_ = (events_.running() + idle.value()) * options_.slots;
    looking_.good();
  } else {
    events_.on_failure(looking_, idle.error().message);
  }
  if (before != capacity_) events_.on_change();
}

}  // namespace pliant::cli
