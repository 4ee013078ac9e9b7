// Good records to spoil: a job without processes, whose workers join, leave and die at random.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/system.h"
#include "record/recorder.h"
#include "record/verify.h"
#include "step/ledger.h"

namespace pliant::record {

using step::kUsualShare;
using step::Ledger;
using step::part_of;
using step::Shares;

/// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("pliant-records-" + std::to_string(random_u64()))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Lines by worker.
using Records = std::map<std::uint64_t, std::vector<StepRecord>>;

/// What is said around the steps.
struct Frame {
  bool begins = true;                              ///< of lineages
  std::optional<Outcome> end = Outcome::finished;  ///< by all who recorded the last step
};

/// As logs in memory, one per worker.
inline std::vector<MemoryLog> logs_of(const Records& records, const Frame& frame = {}) {
  Place last{};
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> lineages;  // first step, and by whom
  for (const auto& [worker, lines] : records)
    for (const auto& line : lines) {
      last = std::max(last, line.place());
      auto& first = lineages.try_emplace(line.lineage, line.step, worker).first->second;
      if (line.step < first.first) first = {line.step, worker};
    }
  std::vector<MemoryLog> logs;
  for (const auto& [worker, lines] : records) {
    MemoryLog log{"worker-" + std::to_string(worker) + ".jsonl", {}};
    for (const auto& line : lines) {
      bool begins = line.lineage > 0 && lineages[line.lineage] == std::pair(line.step, worker);
      if (begins && frame.begins) log.lines.emplace_back(BeginRecord{line.t, worker, line.lineage, line.step, "here"});
      log.lines.push_back(line);
    }
    if (frame.end && !lines.empty() && lines.back().place() == last)
      log.lines.emplace_back(EndRecord{lines.back().t, worker, last.first, last.second + 1, *frame.end});
    logs.push_back(std::move(log));
  }
  return logs;
}

inline void write_records(const Records& records, const std::string& dir, const Frame& frame = {}) {
  for (const auto& log : logs_of(records, frame)) {
    auto recorder = Recorder::open(dir, log.name.substr(0, log.name.rfind('.'))).or_throw();
    for (const auto& line : log.lines) recorder->write(line);
  }
}

class FakeJob {
 public:
  FakeJob(std::uint64_t seed, std::uint64_t dataset, std::uint64_t batch, int workers = 4, double unrest = 0.2)
      : random_(seed), dice_(0, 1), ledger_(dataset), batch_(batch), unrest_(unrest) {
    for (int worker = 0; worker < workers; ++worker) members_.push_back(next_worker_++);
  }

  const Records& records() const { return records_; }
  std::uint64_t step() const { return step_; }
  std::uint64_t views() const { return views_; }
  const Ledger& ledger() const { return ledger_; }
  bool chance(double probability) { return dice_(random_) < probability; }

  void run_epochs(std::uint64_t epochs) {
    while (ledger_.epoch() < epochs) run_step();
  }
  void run_steps(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) run_step();
  }

  void run_step() {
    if (chance(unrest_)) change_members();
    // A death in an epoch's last batch would need a ledger that goes back: the samples always count then.
    bool death = members_.size() > 1 && chance(unrest_ / 2);
    bool submitted = ledger_.left() <= batch_ || chance(0.5);
    auto record = record_of_step();
    std::vector<Range> returned;
    std::optional<std::uint64_t> silent;
    if (death) silent = die(record, submitted, returned);
    ledger_.commit(batch_, returned);
    ++step_;
    digest_ = record.digest.after;
    record.ledger.after = ledger_digest();
    count_view();
    write(record, silent);
    if (silent) bury(*silent);
  }

  /// Everybody dies; others go on from what a checkpoint kept.
  struct Kept {
    std::uint64_t step;
    Ledger ledger;
    std::uint64_t digest;
  };
  Kept checkpoint() const { return {step_, ledger_, digest_}; }
  void restart(const Kept& kept, int workers) {
    step_ = kept.step;
    ledger_ = kept.ledger;
    digest_ = kept.digest;
    ++lineage_;
    view_ = 1;
    last_counted_ = 0;
    members_.clear();
    away_.clear();
    for (int worker = 0; worker < workers; ++worker)  // some files are continued, some are new
      members_.push_back(worker % 2 ? next_worker_++ : static_cast<std::uint64_t>(worker));
  }

 private:
  std::size_t any_member() { return std::uniform_int_distribution<std::size_t>(0, members_.size() - 1)(random_); }

  void change_members() {
    if (members_.size() > 1 && chance(0.5)) {
      auto at = members_.begin() + static_cast<std::ptrdiff_t>(any_member());
      away_.push_back({*at, view_});
      members_.erase(at);
    } else if (!away_.empty() && view_ > away_.front().second && chance(0.5)) {
      members_.push_back(away_.front().first);  // evicted, and welcome back
      away_.erase(away_.begin());
    } else {
      members_.push_back(next_worker_++);
    }
    ++view_;
  }

  StepRecord record_of_step() const {
    StepRecord record;
    record.t = 1.7e9 + 0.01 * static_cast<double>(step_);
    record.step = step_;
    record.epoch = ledger_.epoch();
    record.dataset = ledger_.samples();
    record.global_batch = batch_;
    record.lr = 0.1;
    record.loss = step_ % 7 ? 1.0 / static_cast<double>(step_ + 1) : std::nan("");
    record.digest.before = digest_;
    record.digest.after = mix64(digest_ + lineage_ + 1);
    record.ledger.before = ledger_digest();
    record.lineage = lineage_;
    record.lease = {view_, view_hash(), members_};
    auto batch = ledger_.next(batch_);
    Shares even(members_.size(), kUsualShare);
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      record.samples.push_back({members_[rank], part_of(batch, even, static_cast<int>(rank))});
    return record;
  }

  std::uint64_t view_hash() const { return combine(view_, lineage_); }
  std::uint64_t ledger_digest() const { return combine(step_, ledger_.digest()); }

  /// Somebody dies. If it had submitted everything, the step is closed with it, or its gradients are salvaged into the
  /// next view; if not, its samples return, and the next view closes the step. Who died without recording the step it
  /// was a member in is returned.
  std::optional<std::uint64_t> die(StepRecord& record, bool submitted, std::vector<Range>& returned) {
    auto at = any_member();
    auto victim = members_[at];
    if (submitted && chance(0.5)) return victim;
    bury(victim);
    if (submitted) {
      record.samples[at].by = members_[any_member()];
    } else {
      returned = record.samples[at].ranges;
      record.samples.erase(record.samples.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return std::nullopt;
  }
  void bury(std::uint64_t victim) {
    std::erase(members_, victim);
    ++view_;
  }

  void write(StepRecord record, std::optional<std::uint64_t> except) {
    record.view = view_;
    record.view_hash = view_hash();
    record.size = static_cast<int>(members_.size());
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      record.worker = members_[rank];
      record.rank = static_cast<int>(rank);
      record.took.clear();
      for (const auto& part : record.samples)
        if (part.worker == record.worker) record.took = part.ranges;
      if (record.worker != except) records_[record.worker].push_back(record);
    }
  }
  void count_view() {
    if (view_ != last_counted_) ++views_;
    last_counted_ = view_;
  }

  std::mt19937_64 random_;
  std::uniform_real_distribution<> dice_;
  Ledger ledger_;
  std::uint64_t batch_;
  double unrest_;
  std::vector<std::uint64_t> members_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> away_;  // who left, and in which view
  std::uint64_t next_worker_ = 0, step_ = 0, view_ = 1, lineage_ = 0, views_ = 0, last_counted_ = 0;
  std::uint64_t digest_ = 0;  // of the state
  Records records_;
};

/// All lines of a step, to be spoilt.
inline std::vector<StepRecord*> lines_of(Records& records, std::uint64_t step, std::uint64_t lineage = 0) {
  std::vector<StepRecord*> found;
  for (auto& [worker, lines] : records)
    for (auto& line : lines)
      if (line.step == step && line.lineage == lineage) found.push_back(&line);
  return found;
}

}  // namespace pliant::record
