// The fields of a record's line, and which kind of line must have which.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pliant::record {

enum Field : unsigned {
  kKind,
  kLineVersion,
  kTime,
  kStep,
  kView,
  kViewHash,
  kWorker,
  kRank,
  kSize,
  kEpoch,
  kDataset,
  kSamples,
  kGlobalBatch,
  kLr,
  kLoss,
  kDigest,
  kStall,
  kLineage,
  kLeaseView,
  kLeaseHash,
  kLeaseWorkers,
  kTook,
  kDigestBefore,
  kLedgerBefore,
  kLedgerAfter,
  kBy,
  kDelivered,
  kBeginsLoop,
  kSteps,
  kOutcome,
  kEvent,
  kText,
  kRanges,
  kUnknown
};
inline constexpr std::array<std::string_view, kUnknown> kNames = {"kind",
                                                                  "version",
                                                                  "t",
                                                                  "step",
                                                                  "view",
                                                                  "view_hash",
                                                                  "worker",
                                                                  "rank",
                                                                  "size",
                                                                  "epoch",
                                                                  "dataset",
                                                                  "samples",
                                                                  "global_batch",
                                                                  "lr",
                                                                  "loss",
                                                                  "digest",
                                                                  "stall_ms",
                                                                  "lineage",
                                                                  "lease_view",
                                                                  "lease_view_hash",
                                                                  "lease_workers",
                                                                  "took",
                                                                  "digest_before",
                                                                  "ledger_before",
                                                                  "ledger_after",
                                                                  "by",
                                                                  "delivered",
                                                                  "begins_loop",
                                                                  "steps",
                                                                  "outcome",
                                                                  "event",
                                                                  "text",
                                                                  "ranges"};

using Fields = std::uint64_t;
constexpr Fields bit(Field field) { return Fields{1} << field; }
constexpr Fields between(Field first, Field last) { return (bit(last) << 1) - bit(first); }
inline constexpr Fields kOfContribution = bit(kWorker) | bit(kEpoch) | bit(kRanges);
inline constexpr Fields kOfVersion1 = between(kTime, kLineage);
inline constexpr Fields kOfStep = kOfVersion1 | between(kLeaseView, kLedgerAfter);
inline constexpr Fields kOfBegin = bit(kTime) | bit(kWorker) | bit(kLineage) | bit(kSteps) | bit(kText);
inline constexpr Fields kOfEnd = bit(kTime) | bit(kWorker) | bit(kLineage) | bit(kSteps) | bit(kOutcome);

inline Field field_named(std::string_view name) {
  unsigned field = 0;
  while (field < kUnknown && kNames[field] != name) ++field;
  return static_cast<Field>(field);
}

}  // namespace pliant::record
