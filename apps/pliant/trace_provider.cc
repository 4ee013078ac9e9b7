#include "apps/pliant/trace_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

namespace pliant::cli {

using namespace std::chrono_literals;

TraceProvider::TraceProvider(net::Loop& loop, std::string path, plan::Trace trace, Nanos since,
                             std::unique_ptr<Provider> under, ProviderEvents events)
    : loop_(loop),
      path_(std::move(path)),
      trace_(std::move(trace)),
      began_(clock_.now() - since),
      under_(std::move(under)),
      events_(std::move(events)),
      timer_(loop.every(50ms, [this] { tick(); })),
      now_(trace_.at(seconds(since))) {}

TraceProvider::~TraceProvider() { loop_.cancel(timer_); }

std::optional<std::uint32_t> TraceProvider::capacity() const {
  auto here = static_cast<std::uint32_t>(now_.capacity);
  return std::min(here, under_->capacity().value_or(here));
}

std::uint32_t TraceProvider::allowed() const { return std::min(asked_, static_cast<std::uint32_t>(now_.capacity)); }

void TraceProvider::request(std::uint32_t slots) {
  asked_ = slots;
  passed_ = allowed();
  under_->request(passed_);
}

void TraceProvider::release(std::uint32_t slots) {
  asked_ = slots;
  passed_ = allowed();
  under_->release(passed_);
}

TraceProvider::Stamp TraceProvider::stamp() const {
  std::error_code gone;
  return {std::filesystem::last_write_time(path_, gone), std::filesystem::file_size(path_, gone)};
}

/// When it has changed, and then not for a tick: somebody may be writing a line.
void TraceProvider::follow_file() {
  auto now = stamp();
  if (std::exchange(seen_, now) != now || now == read_) return;
  read_ = now;
  auto trace = read_trace(path_);
  if (trace.ok())
    trace_ = std::move(trace).value();
  else if (events_.on_trouble)
    events_.on_trouble(trace.error().message + ": what it said before holds");
}

void TraceProvider::tick() {
  follow_file();
  const auto& offer = trace_.at(seconds(clock_.now() - began_));
  if (offer == now_) return;
  now_ = offer;
  auto before = std::exchange(passed_, allowed());
  if (passed_ > before) under_->request(passed_);
  if (passed_ < before) {
    if (events_.on_notice) events_.on_notice(fmt::format("{} of {} slots", before - passed_, before), 0);
    under_->release(passed_);
  }
  if (events_.on_change) events_.on_change();
}

Result<plan::Trace> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Code::not_found, path + " cannot be read"};
  return plan::Trace::read(file, path);
}

Result<std::unique_ptr<Provider>> within_trace(net::Loop& loop, const std::string& path, double job_began,
                                               std::unique_ptr<Provider> under, ProviderEvents events) {
  auto trace = read_trace(path);
  if (!trace.ok()) return trace.error();
  std::chrono::duration<double> since(std::max(0.0, unix_seconds() - job_began));
  return std::unique_ptr<Provider>(std::make_unique<TraceProvider>(loop, path, std::move(trace).value(),
                                                                   std::chrono::duration_cast<Nanos>(since),
                                                                   std::move(under), std::move(events)));
}

}  // namespace pliant::cli
