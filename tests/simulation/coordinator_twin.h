// A simulated coordinator's process: the real reception and tenure, on simulated connections.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/chronicle.h"
#include "agent/reception.h"
#include "agent/tenure.h"
#include "simulation/scheduler.h"

namespace pliant::sim {

class Offices;

class CoordinatorTwin final : private agent::Desk {
 public:
  /// `founds`: it may begin a job of which the store knows nothing.
  CoordinatorTwin(Offices& offices, std::string place, bool founds);
  ~CoordinatorTwin() override;

  void begin();
  /// It listens.
  bool serves() const { return reception_ != nullptr; }
  void on_call(std::uint64_t link, agent::Caller caller) { reception_->on_call(link, caller); }
  void on_message(std::uint64_t link, const wire::Message& message) { reception_->on_message(link, message); }
  void on_closed(std::uint64_t link) { reception_->on_closed(link); }
  /// A process of its host has ended.
  void on_process_end(std::uint64_t worker);
  const membership::Coordinator& coordinator() const { return reception_->coordinator(); }

 private:
  void serve(const std::optional<membership::Memory>& memory);
  void every(Nanos period, void (CoordinatorTwin::*what)());
  void look() { tenure_.look(); }
  void sweep();
  void pulse();
  void look_around();

  // ---- agent::Desk ----
  void send(std::uint64_t link, const wire::Message& message) override;
  void hang_up(std::uint64_t link) override;
  void hear(std::uint64_t link) override;
  std::optional<std::uint64_t> owner_of(pid_t pid) const override;
  bool knows(std::uint64_t worker) const override { return processes_.contains(worker); }
  void know(std::uint64_t worker, pid_t pid) override;
  void started(std::uint64_t worker, pid_t pid) override;
  void watch(std::uint64_t worker, pid_t pid) override;
  bool is_agent(pid_t pid) const override;
  session::WorkerNote note_of(std::uint64_t worker) const override;
  std::string charter() const override { return "simulated"; }
  void remember(const membership::Memory& memory) override;
  Result<std::uint64_t> newest_checkpoint() override;
  void once_sure(std::function<void(bool sure)> say) override { tenure_.once_sure(std::move(say)); }

  Offices& offices_;
  const std::string place_;
  agent::Chronicle chronicle_;
  std::map<std::uint64_t, pid_t> processes_;  // by worker
  std::set<std::uint64_t> watched_;           // those that run
  Nanos attended_at_;
  bool was_attended_ = false;
  std::unique_ptr<agent::Reception> reception_;
  agent::Tenure tenure_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pliant::sim
