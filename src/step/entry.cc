#include "step/entry.h"

#include <algorithm>

#include "base/bytes.h"
#include "collective/control.h"
#include "wire/messages.h"

namespace pliant::step {
namespace {

constexpr std::uint32_t kMostMissing = 1 << 24;  // a bound for what is read, not for what may be in flight
constexpr std::size_t kNumbersPerRow = collective::kRowBytes / sizeof(std::uint64_t);

}  // namespace

// The first row holds all but the numbers of what is missing, and how many these are. They follow in rows of their own.

std::vector<std::string> encode(const EntryReport& entry) {
  PLIANT_ASSERT(entry.missing.size() <= kMostMissing);
  const auto& report = entry.report;
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(entry.missing.size()));
  for (bool flag : {report.blank, report.in_step, report.complete, report.closed})
    out.put(static_cast<std::uint8_t>(flag));
  out.put(report.step), out.put(report.layout), out.put(report.digest), out.put(entry.loop);
  out.put(entry.resumes_in);
  out.put_text(std::string_view(entry.words).substr(0, wire::kMaxText));
  std::vector<std::string> rows{text_of(std::move(out))};
  for (std::size_t at = 0; at < entry.missing.size(); at += kNumbersPerRow) {
    ByteWriter row;
    auto end = std::min(at + kNumbersPerRow, entry.missing.size());
    for (auto i = at; i < end; ++i) row.put(entry.missing[i]);
    rows.push_back(text_of(std::move(row)));
  }
  return rows;
}

Result<std::size_t> rows_of_entry(std::string_view first) {
  auto in = reader_of(first);
  auto missing = in.get<std::uint32_t>();
  if (!in.ok() || missing > kMostMissing) return Error{Code::protocol, "first words about too many reductions"};
  return 1 + (missing + kNumbersPerRow - 1) / kNumbersPerRow;
}

Result<EntryReport> decode_entry(const std::vector<std::string>& rows) {
  auto needed = rows.empty() ? 1 : rows_of_entry(rows[0]);
  if (!needed.ok()) return needed.error();
  if (rows.size() < needed.value()) return Error{Code::protocol, "first words cut short"};
  auto in = reader_of(rows[0]);
  EntryReport entry;
  auto& report = entry.report;
  auto missing = in.get<std::uint32_t>();
  for (auto* flag : {&report.blank, &report.in_step, &report.complete, &report.closed})
    *flag = in.get<std::uint8_t>() != 0;
  report.step = in.get<std::uint64_t>();
  report.layout = in.get<std::uint64_t>();
  report.digest = in.get<std::uint64_t>();
  entry.loop = in.get<std::uint64_t>();
  entry.resumes_in = in.get<std::uint64_t>();
  entry.words = in.get_text(wire::kMaxText);
  if (!in.finished()) return Error{Code::protocol, "malformed first words"};
  for (std::size_t row = 1; row < needed.value(); ++row) {
    auto numbers = reader_of(rows[row]);
    auto here = std::min<std::size_t>(missing - entry.missing.size(), kNumbersPerRow);
    for (std::size_t i = 0; i < here; ++i) entry.missing.push_back(numbers.get<std::uint64_t>());
    if (!numbers.finished()) return Error{Code::protocol, "malformed first words"};
  }
  return entry;
}

Result<std::vector<EntryReport>> exchange_entries(const EntryReport& own, const ExchangeRows& exchange) {
  auto mine = encode(own);
  std::vector<std::vector<std::string>> rows;  // by rank
  std::size_t most = 1;
  for (std::size_t number = 0; number < most; ++number) {
    auto got = exchange(number < mine.size() ? std::string_view(mine[number]) : std::string_view());
    if (!got.ok()) return got.error();
    rows.resize(got.value().size());
    for (std::size_t rank = 0; rank < rows.size(); ++rank) rows[rank].push_back(std::move(got.value()[rank]));
    for (std::size_t rank = 0; number == 0 && rank < rows.size(); ++rank) {
      auto needed = rows_of_entry(rows[rank][0]);
      if (!needed.ok()) return needed.error();
      most = std::max(most, needed.value());
    }
  }
  std::vector<EntryReport> all;
  for (const auto& each : rows) {
    auto entry = decode_entry(each);
    if (!entry.ok()) return entry.error();
    all.push_back(std::move(entry).value());
  }
  return all;
}

}  // namespace pliant::step
