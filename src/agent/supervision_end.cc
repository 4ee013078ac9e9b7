// How a job ended, as the supervision of its workers judges it.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/supervision.h"

namespace pliant::agent {
namespace {

std::string format_age(Nanos age) {
  return age < std::chrono::minutes(1) ? fmt::format("{:.1f} s", seconds(age)) : format_span(seconds(age));
}

/// Never that of a job that was stopped by a signal.
int status_of_failure(const Ending& ending) {
  bool like_a_stop = ending.signal == SIGINT || ending.signal == SIGTERM || ending.signal == SIGHUP;
  return like_a_stop ? 1 : std::max(ending.exit_status(), 1);
}

}  // namespace

/// Of several hosts one may be without workers for a while; and so may a job whose coordinator is about to say that it
/// is over, or to ask for others. Before the first view that is so only until the first ones are started, of which some
/// may be faster at their end than the others at their beginning.
bool Supervision::is_needed() const {
  if (phase_ != Phase::running || word_.is_over()) return false;
  auto missed = driver_.missed_for();
  if (options_.part) return !missed || *missed < kLoneliness;
  // The coordinator says what follows. It may not have said yet that a job has begun which another agent had.
  if (word_.has_begun() || options_.attached) return !missed || *missed < Deaths::kLastWord;
  bool awaits_more = workers_.size() < options_.wanted;
  return awaits_more && deaths_.all().empty();
}

void Supervision::begin_settling() {
  if (phase_ == Phase::ending) report_failure();
  judged_ = phase_ != Phase::running;
  if (verdict_.interrupted()) countdown_.leave_at(clock_.now() + kPatience);
  phase_ = Phase::settling;
  countdown_.call_off_end();
}

bool Supervision::judged() {
  if (phase_ != Phase::settling || !coordinator_is_done()) return false;
  if (std::exchange(judged_, true)) {
    auto said = word_.outcome_of_a_stop();
    if (verdict_.interrupted() && said == Outcome::finished)
      verdict_.finish();
    else if (verdict_.open() && said == Outcome::failed)
      report_failure();
    else if (verdict_.open())
      verdict_.stop();
    return true;
  }
  if (options_.part) {
    judge_part();
    return true;
  }
  give_up_on_explanations();
  judged_ = !deaths_.any_open();
  if (judged_) conclude(judgement());
  return judged_;
}

/// The coordinator's word; without one, what the workers have written down. The exit codes of a job that never began
/// are all there is to know of it.
Outcome Supervision::judgement() const {
  bool all_good = true, some_finished = false, perhaps_well = false;
  for (const auto& worker : workers_) {
    const auto& ending = *worker.ending;
    all_good = all_good && ending.good();
    if (driver_.note_of(worker.id).last_word(ending.by_itself()) != Outcome::finished) continue;
    some_finished = true;
    perhaps_well = perhaps_well || ending.good() || ending.unknown;
  }
  if (!word_.has_begun()) return all_good && !options_.attached ? Outcome::finished : Outcome::failed;
  auto said = word_.outcome_or(some_finished ? Outcome::finished : Outcome::failed);
  // The program has the last word: what follows its loop may fail.
  return said == Outcome::finished && some_finished && !perhaps_well ? Outcome::failed : said;
}

void Supervision::conclude(Outcome outcome) {
  verdict_.hear(outcome);
  if (outcome == Outcome::failed) report_failure();
  if (outcome == Outcome::stopped) verdict_.stop();
}

/// It has said how the job ended, or of one that never began, all that the workers had to say; or it takes too long.
bool Supervision::coordinator_is_done() {
  driver_.drain();
  bool begun = word_.has_begun() || options_.attached;  // the coordinator may not have said yet that it has
  bool done = begun ? word_.is_over() : deaths_.all_answered();
  // How its workers ended nobody else can tell a coordinator that is out of reach for a while.
  bool untold =
      std::ranges::any_of(workers_, [](const Charge& worker) { return !worker.running() && !worker.heard_of; });
  auto patience = options_.part && begun && untold && driver_.missed_for() ? kLoneliness : Deaths::kLastWord;
  return done || clock_.now() >= std::max({deaths_.told_at(), began_, stopping_since_}) + patience;
}

void Supervision::judge_part() {
  auto said = word_.outcome_or(Outcome::failed);
  verdict_.hear(said);
  if (said == Outcome::finished || said == Outcome::stopped) return;
  verdict_.blame(1);
  if (!deaths_.all().empty())
    report_failure();
  else if (!word_.is_over())
    driver_.say(fmt::format("pliant: {}job '{}' cannot be reached any more\n", options_.where(), options_.job));
}

void Supervision::report_failure() {
  if (std::exchange(reported_, true)) return;
  // In a job that survives its workers, only the end of the last ones is the job's.
  auto last = deaths_.all();
  std::erase_if(last, [this](const Death& death) { return !word_.in_view(death.id); });
  auto blamed = first_to_blame(last.empty() ? deaths_.all() : last);
  verdict_.fail(blamed ? status_of_failure(blamed->ending) : 1);
  if (!blamed && options_.part) return;
  auto reason = word_.reason();
  auto why = reason.empty() ? std::string("no worker has finished it") : reason;
  if (!blamed) return driver_.say(fmt::format("pliant: job '{}' failed: {}\n", options_.name, why));
  auto text = fmt::format("pliant: {}job '{}' failed: worker {} ended after {}: {}\n", options_.where(), options_.job,
                          blamed->id, format_age(blamed->after), blamed->ending.words());
  text += driver_.last_words(blamed->id);
  if (!reason.empty() && word_.has_begun()) text += fmt::format("pliant: {}\n", why);
  driver_.say(text);
}

}  // namespace pliant::agent
