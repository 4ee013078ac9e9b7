#include "step/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/messages.h"

namespace pliant::step {

namespace {

constexpr std::string_view kFailedSomehow = "it failed";

/// What a row says of a failure when `room` bytes are left for it and those after it; takes them.
std::string_view take_failure(std::string_view failure, std::size_t& room) {
  failure = failure.substr(0, kLongestFailure);
  if (failure.size() > room) failure = kFailedSomehow;
  room -= std::min(room, failure.size());
  return failure;
}

}  // namespace

std::string encode(const SummaryRow& row) {
  ByteWriter out;
  for (auto word : {row.step, row.view_hash, row.plan_hash, row.leaves, row.delivered, row.samples, row.state_digest,
                    row.state_stripe, row.deal_digest, row.skipped, row.share})
    out.put(word);
  for (double seconds : {row.times.compute, row.times.exposed, row.times.stall, row.times.input}) out.put(seconds);
  out.put(row.speed);
  out.put(static_cast<std::uint32_t>(row.slots.size()));
  for (auto slot : row.slots) out.put(slot);
  auto logs = std::min(row.logs.size(), kMaxLogs);
  out.put(static_cast<std::uint32_t>(logs));
  for (std::size_t i = 0; i < logs; ++i) {
    out.put_text(std::string_view(row.logs[i].name).substr(0, wire::kMaxName));
    out.put(row.logs[i].value);
    out.put(row.logs[i].weight);
  }
  auto policies = std::min(row.policies.size(), kMaxPolicies);
  out.put(static_cast<std::uint32_t>(policies));
  auto room = kAllFailures;
  for (std::size_t i = 0; i < policies; ++i) {
    out.put(row.policies[i].hash);
    out.put_text(take_failure(row.policies[i].failure, room));
  }
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}

Result<SummaryRow> decode_summary(std::string_view bytes) {
  ByteReader in({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  SummaryRow row;
  for (auto* word : {&row.step, &row.view_hash, &row.plan_hash, &row.leaves, &row.delivered, &row.samples,
                     &row.state_digest, &row.state_stripe, &row.deal_digest, &row.skipped, &row.share})
    *word = in.get<std::uint64_t>();
  for (auto* seconds : {&row.times.compute, &row.times.exposed, &row.times.stall, &row.times.input})
    *seconds = in.get<double>();
  row.speed = in.get<double>();
  auto slots = in.get<std::uint32_t>();
  if (slots > wire::kMaxMembers) return Error{Code::protocol, "a summary with too many contributors"};
  for (std::uint32_t i = 0; i < slots && in.ok(); ++i) row.slots.push_back(in.get<std::uint64_t>());
  auto logs = in.get<std::uint32_t>();
  if (logs > kMaxLogs) return Error{Code::protocol, "a summary with too many logs"};
  for (std::uint32_t i = 0; i < logs && in.ok(); ++i) {
    LogEntry entry;
    entry.name = in.get_text(wire::kMaxName);
    entry.value = in.get<double>();
    entry.weight = in.get<double>();
    row.logs.push_back(std::move(entry));
  }
  auto policies = in.get<std::uint32_t>();
  if (policies > kMaxPolicies) return Error{Code::protocol, "a summary with too many policies"};
  auto room = kAllFailures;
  for (std::uint32_t i = 0; i < policies && in.ok(); ++i) {
    auto hash = in.get<std::uint64_t>();
    auto failure = in.get_text(kLongestFailure);
    if (take_failure(failure, room) != failure) return Error{Code::protocol, "a summary with too long failures"};
    row.policies.push_back({hash, std::move(failure)});
  }
  if (!in.finished()) return Error{Code::protocol, "a malformed summary"};
  return row;
}

std::string deviants(const std::vector<std::uint64_t>& digests) {
  std::map<std::uint64_t, std::vector<int>> camps;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) camps[digests[rank]].push_back(static_cast<int>(rank));
  if (camps.size() < 2) return {};
  auto largest = std::max_element(camps.begin(), camps.end(),
                                  [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * largest->second.size() <= digests.size()) {
    std::vector<std::string> groups;
    for (const auto& [digest, ranks] : camps) groups.push_back(fmt::format("{}", fmt::join(ranks, ", ")));
    return fmt::format("ranks differ: {}", fmt::join(groups, " | "));
  }
  std::vector<int> others;
  for (const auto& [digest, ranks] : camps)
    if (digest != largest->first) others.insert(others.end(), ranks.begin(), ranks.end());
  std::sort(others.begin(), others.end());
  return fmt::format("{} {} from ranks {}", others.size() == 1 ? "rank" : "ranks",
                     fmt::format("{} {}", fmt::join(others, ", "), others.size() == 1 ? "deviates" : "deviate"),
                     fmt::join(largest->second, ", "));
}

void speak_for(SummaryRow& row, const SummaryRow& dead) {
  row.samples += dead.samples;
  row.slots.insert(row.slots.end(), dead.slots.begin(), dead.slots.end());
  for (const auto& log : dead.logs)
    if (row.logs.size() < kMaxLogs) row.logs.push_back(log);
}

namespace {

/// Why a policy has to go, on all workers: what the first one that has trouble with it says.
std::string problem_with(const std::vector<SummaryRow>& rows, std::size_t policy) {
  std::vector<std::uint64_t> hashes;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (policy >= rows[rank].policies.size()) return fmt::format("rank {} does not have it", rank);
    const auto& word = rows[rank].policies[policy];
    if (!word.failure.empty()) return fmt::format("rank {}: {}", rank, word.failure);
    hashes.push_back(word.hash);
  }
  auto text = deviants(hashes);
  return text.empty() ? "" : "it answers differently: " + text;
}

/// Means, of those who were there in the step before.
StepTimes mean_times(const std::vector<SummaryRow>& rows) {
  StepTimes mean;
  double count = 0;
  for (const auto& row : rows) count += row.times.whole() > 0 ? 1 : 0;
  if (count == 0) return mean;
  for (const auto& row : rows) {
    mean.compute += row.times.compute / count;
    mean.exposed += row.times.exposed / count;
    mean.stall += row.times.stall / count;
    mean.input += row.times.input / count;
  }
  return mean;
}

}  // namespace

Result<Summary> fold(const std::vector<SummaryRow>& rows) {
  std::vector<std::uint64_t> digests;
  Summary summary;
  std::map<std::string, std::pair<double, double>> sums;
  std::vector<std::pair<std::uint64_t, int>> slots;  // and the rank that names them
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const auto& row = rows[rank];
    if (row.step != rows[0].step || row.view_hash != rows[0].view_hash)
      return Error{Code::mismatch,
                   fmt::format("rank 0 closes step {}, rank {} closes step {}", rows[0].step, rank, row.step)};
    digests.push_back(combine(row.state_digest, row.deal_digest));
    summary.samples += row.samples;
    summary.contributors += row.samples > 0 ? 1 : 0;
    for (auto slot : row.slots) slots.emplace_back(slot, static_cast<int>(rank));
    summary.delivered = summary.delivered || row.delivered != 0;
    summary.outlooks.push_back({row.plan_hash, membership::leaving_from(row.leaves)});
    summary.speeds.push_back(row.speed);
    summary.shares.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(row.share, UINT32_MAX)));
    for (const auto& log : row.logs) {
      auto& [sum, weight] = sums[log.name];
      sum += log.value * log.weight;
      weight += log.weight;
    }
  }
  if (auto text = deviants(digests); !text.empty())
    return Error{Code::diverged,
                 fmt::format("replicas are no longer identical before step {}: {} (stripe {} of the shared state)",
                             rows[0].step, text, rows[0].state_stripe)};
  std::ranges::sort(slots);
  for (auto [slot, rank] : slots) summary.slots.push_back(slot), summary.speakers.push_back(rank);
  for (const auto& [name, sum] : sums)
    if (sum.second > 0) summary.averages[name] = sum.first / sum.second;
  summary.times = mean_times(rows);
  for (std::size_t i = 0; i < rows[0].policies.size(); ++i) summary.policies.push_back(problem_with(rows, i));
  return summary;
}

}  // namespace pliant::step
