#include "policy/action.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"

namespace pliant::policy {
namespace {

enum : std::uint8_t {
  kWorkers = 1,
  kGlobal = 2,
  kLocal = 4,
  kRate = 8,
  kStop = 16,
  kTopology = 32,
  kReplace = 64,
  kSettled = 128
};

}  // namespace

std::string encode(const Action& action) {
  ByteWriter out;
  std::uint8_t what = 0;
  if (action.workers) what |= kWorkers;
  if (action.global_batch) what |= kGlobal;
  if (action.local_batch) what |= kLocal;
  if (action.rate_factor) what |= kRate;
  if (action.stop) what |= kStop;
  if (action.topology) what |= kTopology;
  if (action.replace) what |= kReplace;
  if (action.settled) what |= kSettled;
  out.put(what);
  out.put(static_cast<std::int64_t>(action.workers.value_or(0)));
  out.put(action.global_batch.value_or(0));
  out.put(action.local_batch.value_or(0));
  out.put(action.rate_factor.value_or(0));
  out.put(action.replace.value_or(0));
  out.put(static_cast<std::uint32_t>(action.shares.size()));
  for (const auto& [worker, share] : action.shares) {
    out.put(worker);
    out.put(share);
  }
  out.put_text(std::string_view(action.topology.value_or("")).substr(0, kLongestName));
  out.put_text(std::string_view(action.text).substr(0, kLongestText));
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}

Result<Action> decode_action(std::string_view bytes) {
  ByteReader in({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  auto what = in.get<std::uint8_t>();
  auto workers = in.get<std::int64_t>();
  auto global = in.get<std::uint64_t>();
  auto local = in.get<std::uint64_t>();
  auto rate = in.get<double>();
  auto replace = in.get<std::uint64_t>();
  Action action;
  for (auto count = in.get<std::uint32_t>(); count > 0 && in.ok(); --count) {
    auto worker = in.get<std::uint64_t>();
    action.shares[worker] = in.get<double>();
  }
  auto topology = in.get_text(kLongestName);
  action.text = in.get_text(kLongestText);
  if (!in.finished()) return Error{Code::protocol, "a malformed action"};
  if (what & kWorkers) action.workers = static_cast<int>(workers);
  if (what & kGlobal) action.global_batch = global;
  if (what & kLocal) action.local_batch = local;
  if (what & kRate) action.rate_factor = rate;
  if (what & kTopology) action.topology = topology;
  if (what & kReplace) action.replace = replace;
  action.settled = (what & kSettled) != 0;
  action.stop = (what & kStop) != 0;
  return action;
}

std::string describe(const Action& action) {
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (action.workers) add(fmt::format("{}{} workers", action.settled ? "to stay with " : "", *action.workers));
  if (action.global_batch) add(fmt::format("a batch of {}", *action.global_batch));
  if (action.local_batch) add(fmt::format("a batch of {} per worker", *action.local_batch));
  if (action.rate_factor) add(fmt::format("{:.4g} times the rate", *action.rate_factor));
  if (action.replace) add(fmt::format("another worker in place of worker {}", *action.replace));
  for (const auto& [worker, share] : action.shares) add(fmt::format("{:.2g} of a share for worker {}", share, worker));
  if (action.topology) add(fmt::format("the topology '{}'", *action.topology));
  if (action.stop) add("to stop");
  if (!action.text.empty()) add('"' + action.text + '"');
  return text.empty() ? "nothing" : text;
}

std::string objection_to(const Action& action) {
  constexpr std::uint64_t kMostSamples = 1ULL << 40;
  if (action.workers && (*action.workers < 1 || *action.workers > 65536))
    return fmt::format("a job of {} workers cannot be", *action.workers);
  for (const auto& batch : {action.global_batch, action.local_batch})
    if (batch && (*batch == 0 || *batch > kMostSamples)) return fmt::format("a batch of {} cannot be", *batch);
  if (action.rate_factor && !(std::isfinite(*action.rate_factor) && *action.rate_factor >= 0))
    return fmt::format("{} times the rate cannot be", *action.rate_factor);
  constexpr double kLargestShare = 1000;
  bool any = action.shares.empty();
  for (const auto& [worker, share] : action.shares) {
    if (!(share >= 0 && share <= kLargestShare)) return fmt::format("{} of a share cannot be", share);
    any = any || share > 0;
  }
  if (!any) return "somebody must have a share";
  if (action.topology && *action.topology != "direct")
    return fmt::format("there is no topology '{}': only 'direct'", *action.topology);
  if (action.global_batch && action.local_batch) return "a batch is given per worker or in all, not both";
  return {};
}

}  // namespace pliant::policy
