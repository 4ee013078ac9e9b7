// Another provider, within what a trace says was to be had: capacity and prices, replayed from the job's beginning on.
// What the trace takes away leaves with notice, as it would have. A trace that is written while the job runs is
// followed: whoever knows what can be had says it so.
// Threads: lives on its loop's thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/pliant/provider.h"
#include "base/clock.h"
#include "net/loop.h"
#include "plan/trace.h"

namespace pliant::cli {

class TraceProvider final : public Provider {
 public:
  /// `trace` was read from the file. `since` is how long the job has been running: with an agent that has just taken it
  /// up, for a while.
  TraceProvider(net::Loop& loop, std::string path, plan::Trace trace, Nanos since, std::unique_ptr<Provider> under,
                ProviderEvents events);
  ~TraceProvider() override;

  std::optional<std::uint32_t> capacity() const override;
  void request(std::uint32_t slots) override;
  void release(std::uint32_t slots) override;
  std::optional<double> price() const override { return now_.price; }
  void end() override { under_->end(); }

 private:
  /// Whether a file is still as it was.
  struct Stamp {
    std::filesystem::file_time_type written{};
    std::uintmax_t size = 0;

    bool operator==(const Stamp&) const = default;
  };
  Stamp stamp() const;
  std::uint32_t allowed() const;
  void tick();
  void follow_file();

  net::Loop& loop_;
  SteadyClock clock_;
  const std::string path_;
  plan::Trace trace_;
  Stamp seen_, read_;
  const Nanos began_;
  std::unique_ptr<Provider> under_;
  ProviderEvents events_;
  net::Loop::Timer timer_;
  plan::Offer now_;
  std::uint32_t asked_ = 0, passed_ = 0;
};

/// Code::invalid or Code::not_found says what is wrong.
Result<plan::Trace> read_trace(const std::string& path);
/// `under`, within the trace in a file; the job has begun so many seconds after 1970.
Result<std::unique_ptr<Provider>> within_trace(net::Loop& loop, const std::string& path, double job_began,
                                               std::unique_ptr<Provider> under, ProviderEvents events);

}  // namespace pliant::cli
