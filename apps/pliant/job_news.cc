#include "apps/pliant/job_news.h"

namespace pliant::cli {

JobNews::JobNews(const std::string& price) : account_(price.empty() ? Prices() : parse_prices(price).or_throw()) {}

void JobNews::on_progress(Nanos now, const wire::Progress& progress) {
  progress_ = progress;
  pace_.on_progress(now, progress);
  account_.on_progress(seconds(now), progress);
}

void JobNews::describe(Snapshot& snapshot, const agent::JobWord& word, Nanos now, bool runs) const {
  snapshot.workers = static_cast<int>(word.state().wanted);
  snapshot.begun = word.has_begun();
  snapshot.progress = progress_;
  if (runs) snapshot.seconds_left = pace_.seconds_left(now);
  snapshot.bill = account_.lines(seconds(now));
}

}  // namespace pliant::cli
