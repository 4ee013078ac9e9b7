// The slots for workers on this machine: how many there are by the word of whoever lends it (a trace, a spot notice),
// and what they cost.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/event_log.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/notice_watch.h"
#include "apps/pliant/provider.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::cli {

struct SlotEvents {
  /// slots() has been set, perhaps to what it was.
  std::function<void()> on_slots;
  /// A worker's hour costs so much from now on.
  std::function<void(double per_hour)> on_price;
  /// The machine will be taken away.
  std::function<void()> on_notice;
  /// Whole lines for people.
  std::function<void(const std::string& lines)> say;
};

class SlotSupply {
 public:
  /// Everything must outlive it.
  SlotSupply(net::Loop& loop, const JobRecord& record, agent::EventLog& log, SlotEvents events)
      : loop_(loop), record_(record), log_(log), events_(std::move(events)) {}

  /// As many as the job may have here, or as its trace lets it have now.
  Status open();
  /// From now on on_notice may be called, if the job's plan says who tells.
  void watch_for_notice();
  /// Never fewer than the job must have: what a trace says was so once, this job runs now.
  std::uint32_t slots() const { return slots_; }

 private:
  void set(std::uint32_t slots);
  void follow_price();
  void on_notice(const SpotNotice& notice);

  net::Loop& loop_;
  const JobRecord& record_;
  agent::EventLog& log_;
  const SlotEvents events_;
  std::unique_ptr<Provider> provider_;
  std::optional<NoticeWatch> notices_;
  std::uint32_t slots_ = 0;
  bool told_of_least_ = false;
};

}  // namespace pliant::cli
