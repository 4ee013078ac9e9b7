#include "record/logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace pliant::record {
namespace {

constexpr std::size_t kMostFaults = 100;

class MemoryFeed final : public LineFeed {
 public:
  explicit MemoryFeed(const std::vector<Line>& lines) : lines_(lines) {}
  Found next() override {
    if (next_ == lines_.size()) return Found::end;
    ++next_;
    return Found::line;
  }
  const Line& line() const override { return lines_[next_ - 1]; }
  const std::string& problem() const override { return none_; }
  std::uint64_t number() const override { return next_; }

 private:
  const std::vector<Line>& lines_;
  const std::string none_;
  std::size_t next_ = 0;
};

}  // namespace

void Faults::add(std::string fault) {
  if (faults_.size() == kMostFaults) {
    ++more_;
    return;
  }
  std::ranges::replace_if(
      fault, [](unsigned char c) { return std::iscntrl(c); }, ' ');
  faults_.push_back(std::move(fault));
}

std::vector<std::string> Faults::take() && {
  if (more_ > 0) faults_.push_back(fmt::format("and {} more", more_));
  return std::move(faults_);
}

Result<std::unique_ptr<LineFeed>> MemoryLogs::read(std::size_t index) const {
  return std::unique_ptr<LineFeed>(std::make_unique<MemoryFeed>(logs_[index].lines));
}

std::string Spot::text() const { return fmt::format("{}:{}", *log, number); }

Result<StepSource> StepSource::open(const Logs& logs, std::size_t index, Faults* faults, Remarks* remarks) {
  auto lines = logs.read(index);
  if (!lines.ok()) return lines.error();
  return StepSource(std::move(lines).value(), logs.name(index), faults, remarks);
}

void StepSource::fault(const std::string& what) {
  if (faults_) faults_->add(fmt::format("{}: {}", where().text(), what));
}

/// Whether the record continues this log.
bool StepSource::follows(const StepRecord& record) {
  if (writer_ && record.writer() != *writer_) {
    fault(fmt::format("worker {} in the file of worker {}", record.writer(), *writer_));
    return false;
  }
  if (last_ && record.place() <= *last_) {
    fault(record.place() == *last_ ? fmt::format("step {} is recorded again", record.step)
                                   : fmt::format("step {} of lineage {} after step {} of lineage {}", record.step,
                                                 record.lineage, last_->second, last_->first));
    return false;
  }
  writer_ = record.writer();
  last_ = record.place();
  return true;
}

void StepSource::remark(const Line& line) {
  if (!remarks_) return;
  if (const auto* begin = std::get_if<BeginRecord>(&line)) remarks_->begins.push_back(*begin);
  if (const auto* end = std::get_if<EndRecord>(&line)) {
    if (writer_ && end->worker != *writer_)
      fault(fmt::format("the end of worker {} in the file of worker {}", end->worker, *writer_));
    remarks_->end = *end;
  }
  const auto* event = std::get_if<EventRecord>(&line);
  if (event && event->worker && event->event == "ended") remarks_->ended_workers.push_back(*event->worker);
  if (event && !event->worker && event->event == "over") remarks_->over = event->text;
}

std::optional<Entry> StepSource::next() {
  for (;;) {
    switch (lines_->next()) {
      case LineFeed::Found::line:
        if (const auto* step = std::get_if<StepRecord>(&lines_->line())) {
          if (!follows(*step)) break;
          if (remarks_) remarks_->end.reset();
          return Entry{step, where()};
        }
        remark(lines_->line());
        break;
      case LineFeed::Found::unreadable:
        fault(lines_->problem());
        break;
      case LineFeed::Found::torn:
        ++torn_lines_;
        return std::nullopt;
      case LineFeed::Found::end:
        return std::nullopt;
    }
  }
}

}  // namespace pliant::record
