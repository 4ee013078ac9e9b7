// Reading a line: takes the parser's events as they come, without a tree of values in between.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "record/line.h"
#include "record/line_fields.h"

namespace pliant::record {
namespace {

using nlohmann::json;

bool parse_hex(std::string_view text, std::uint64_t& value) {
  if (text.size() != 16) return false;
  value = 0;
  for (char c : text) {
    bool digit = '0' <= c && c <= '9';
    if (!digit && !('a' <= c && c <= 'f')) return false;
    value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

/// Every event returns false to stop the parser, after having said why.
class LineReader {
 public:
  Result<Line> read(std::string_view text) {
    bool whole = json::sax_parse(text.begin(), text.end(), this);
    Line line;
    if (whole) line = finish();
    if (!whole || !why_.empty()) return Error{Code::protocol, why_};
    return line;
  }

  // ---- what the parser calls ----
  bool null() { return skip_ > 0 || number(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool value);
  bool number_integer(std::int64_t value) { return number_float(static_cast<double>(value), {}); }  // a negative one
  bool number_unsigned(std::uint64_t value);
  bool number_float(double value, const std::string&) { return skip_ > 0 || number(value); }
  bool string(std::string& text);
  bool binary(json::binary_t&) { return wrong(); }
  bool start_object(std::size_t);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  bool key(std::string& name);
  bool parse_error(std::size_t position, const std::string&, const json::exception&) {
    return fail(fmt::format("not JSON from byte {} on", position));
  }

 private:
  enum Place { kOutside, kInRecord, kInSamples, kInContribution, kInRanges, kInRange, kInWorkers };

  bool fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }
  bool wrong() {
    if (place_ == kOutside) return fail("not a record");
    return fail(fmt::format("'{}' is not what it should be", field_ == kUnknown ? "samples" : kNames[field_]));
  }
  bool in_object() const { return place_ == kInRecord || place_ == kInContribution; }
  bool skips_this() const { return in_object() && field_ == kUnknown; }
  bool enter_skipped() {
    ++skip_;
    return true;
  }
  bool leave_skipped() {
    --skip_;
    return true;
  }
  bool number(double value);
  bool bound(std::uint64_t value);
  bool part_of_range(std::uint64_t value);
  bool start_ranges(std::vector<Range>& ranges) {
    ranges_ = &ranges;
    place_ = kInRanges;
    return true;
  }
  std::uint64_t* whole_number();
  int* small_number();
  std::uint64_t* hash();
  std::string* words();
  void require(Fields fields);
  Line finish();

  StepRecord step_;  // also what a begin, an end or an event has in common with a step
  std::string why_, kind_, event_, text_, outcome_;
  std::uint64_t steps_ = 0;
  Place place_ = kOutside;
  Field field_ = kUnknown;                // whose value comes next
  std::uint64_t skip_ = 0;                // open brackets of a value that nobody asked for
  Fields seen_ = 0;                       // fields of the record
  Fields seen_in_part_ = 0;               // fields of the contribution
  std::vector<Range>* ranges_ = nullptr;  // that are being read
  int numbers_ = 0;                       // of the range
  std::vector<std::uint64_t> epochs_;     // of the contributions
};

/// Where a whole number of the current field goes; nullptr if the field has none.
std::uint64_t* LineReader::whole_number() {
  bool in_part = place_ == kInContribution;
  if (!in_object()) return nullptr;
  switch (field_) {
    case kWorker:
      return in_part ? &step_.samples.back().worker : &step_.worker;
    case kBy:
      return in_part ? &step_.samples.back().by.emplace() : &step_.by.emplace();
    case kEpoch:
      return in_part ? &epochs_.back() : &step_.epoch;
    case kStep:
      return &step_.step;
    case kView:
      return &step_.view;
    case kDataset:
      return &step_.dataset;
    case kGlobalBatch:
      return &step_.global_batch;
    case kLineage:
      return &step_.lineage;
    case kLeaseView:
      return &step_.lease.view;
    case kSteps:
      return &steps_;
    default:
      return nullptr;
  }
}

int* LineReader::small_number() {
  if (place_ != kInRecord) return nullptr;
  return field_ == kRank          ? &step_.rank
         : field_ == kSize        ? &step_.size
         : field_ == kLineVersion ? &step_.version
                                  : nullptr;
}

std::uint64_t* LineReader::hash() {
  switch (field_) {
    case kViewHash:
      return &step_.view_hash;
    case kLeaseHash:
      return &step_.lease.hash;
    case kDigest:
      return &step_.digest.after;
    case kDigestBefore:
      return &step_.digest.before;
    case kLedgerBefore:
      return &step_.ledger.before;
    case kLedgerAfter:
      return &step_.ledger.after;
    default:
      return nullptr;
  }
}

std::string* LineReader::words() {
  return field_ == kKind      ? &kind_
         : field_ == kEvent   ? &event_
         : field_ == kText    ? &text_
         : field_ == kOutcome ? &outcome_
                              : nullptr;
}

bool LineReader::bound(std::uint64_t value) {
  auto most = field_ == kWorker || field_ == kBy || field_ == kLeaseWorkers ? std::numeric_limits<std::uint64_t>::max()
              : small_number()                                              ? std::numeric_limits<int>::max()
                                                                            : kLargestNumber;
  return value <= most || fail(fmt::format("'{}' is absurd", kNames[field_]));
}

bool LineReader::part_of_range(std::uint64_t value) {
  auto& range = ranges_->back();
  if (value > kLargestNumber || ++numbers_ > 2) return wrong();
  (numbers_ == 1 ? range.begin : range.end) = value;
  return true;
}

bool LineReader::number_unsigned(std::uint64_t value) {
  if (skip_ > 0 || skips_this()) return true;
  if (place_ == kInRange) return part_of_range(value);
  if (place_ == kInWorkers) {
    step_.lease.workers.push_back(value);
    return true;
  }
  auto* target = whole_number();
  auto* small = small_number();
  if (!target && !small) return number(static_cast<double>(value));
  if (!bound(value)) return false;
  if (target)
    *target = value;
  else
    *small = static_cast<int>(value);
  return true;
}

/// A number that need not be whole, or null.
bool LineReader::number(double value) {
  if (skips_this()) return true;
  if (place_ != kInRecord) return wrong();
  if (field_ == kTime && std::isfinite(value))
    step_.t = value;
  else if (field_ == kLr)
    step_.lr = value;
  else if (field_ == kLoss)
    step_.loss = value;
  else if (field_ == kStall)
    step_.stall_ms = value;
  else
    return wrong();
  return true;
}

bool LineReader::boolean(bool value) {
  if (skip_ > 0 || skips_this()) return true;
  if (place_ != kInRecord || (field_ != kDelivered && field_ != kBeginsLoop)) return wrong();
  (field_ == kDelivered ? step_.delivered : step_.begins_loop) = value;
  return true;
}

bool LineReader::string(std::string& text) {
  if (skip_ > 0 || skips_this()) return true;
  if (place_ != kInRecord) return wrong();
  if (auto* target = hash()) return parse_hex(text, *target) || wrong();
  auto* target = words();
  if (!target) return wrong();
  *target = std::move(text);
  return true;
}

bool LineReader::start_object(std::size_t) {
  if (skip_ > 0 || skips_this()) return enter_skipped();
  if (place_ == kOutside) {
    place_ = kInRecord;
  } else if (place_ == kInSamples) {
    place_ = kInContribution;
    seen_in_part_ = 0;
    step_.samples.emplace_back();
    epochs_.emplace_back();
  } else {
    return wrong();
  }
  return true;
}

bool LineReader::end_object() {
  if (skip_ > 0) return leave_skipped();
  if (place_ == kInContribution && (seen_in_part_ & kOfContribution) != kOfContribution)
    return fail("a part of 'samples' lacks its worker, epoch or ranges");
  place_ = place_ == kInContribution ? kInSamples : kOutside;
  field_ = kSamples;
  return true;
}

bool LineReader::start_array(std::size_t) {
  if (skip_ > 0 || skips_this()) return enter_skipped();
  if (place_ == kInRecord && field_ == kTook) return start_ranges(step_.took);
  if (place_ == kInContribution && field_ == kRanges) return start_ranges(step_.samples.back().ranges);
  if (place_ == kInRecord && field_ == kSamples) {
    place_ = kInSamples;
  } else if (place_ == kInRecord && field_ == kLeaseWorkers) {
    place_ = kInWorkers;
  } else if (place_ == kInRanges) {
    place_ = kInRange;
    numbers_ = 0;
    ranges_->emplace_back();
  } else {
    return wrong();
  }
  return true;
}

bool LineReader::end_array() {
  if (skip_ > 0) return leave_skipped();
  if (place_ == kInRange) {
    if (numbers_ != 2 || ranges_->back().begin > ranges_->back().end) return wrong();
    place_ = kInRanges;
  } else {
    place_ = place_ == kInRanges && field_ == kRanges ? kInContribution : kInRecord;
  }
  return true;
}

bool LineReader::key(std::string& name) {
  if (skip_ > 0) return true;
  field_ = field_named(name);
  if (place_ == kInContribution && !((kOfContribution | bit(kBy)) & bit(field_))) field_ = kUnknown;
  if (place_ == kInRecord && field_ == kRanges) field_ = kUnknown;
  if (field_ == kUnknown) return true;
  auto& seen = place_ == kInContribution ? seen_in_part_ : seen_;
  if (seen & bit(field_)) return fail(fmt::format("'{}' is there twice", kNames[field_]));
  seen |= bit(field_);
  return true;
}

void LineReader::require(Fields fields) {
  for (unsigned field = 0; field < kUnknown; ++field)
    if (fields & ~seen_ & bit(static_cast<Field>(field))) fail(fmt::format("'{}' is missing", kNames[field]));
}

/// The record that all of these values make; says why if they make none.
Line LineReader::finish() {
  if (!(seen_ & bit(kLineVersion))) step_.version = 1;
  if (step_.version > kVersion || step_.version < 1)
    fail(fmt::format("of version {}: this pliant reads records of version 1 to {}", step_.version, kVersion));
  if (kind_ == "event") {
    require(bit(kEvent));
    return EventRecord{step_.t, event_, seen_ & bit(kWorker) ? std::optional(step_.worker) : std::nullopt, text_};
  }
  if (kind_ == "begin") {
    require(kOfBegin);
    return BeginRecord{step_.t, step_.worker, step_.lineage, steps_, text_};
  }
  if (kind_ == "end") {
    require(kOfEnd);
    auto outcome = outcome_named(outcome_);
    if (!outcome) fail("'outcome' is not what it should be");
    return EndRecord{step_.t, step_.worker, step_.lineage, steps_, outcome.value_or(Outcome::failed)};
  }
  if (kind_ != "step") fail("not a record");
  require(step_.version == 1 ? kOfVersion1 : kOfStep);
  for (auto epoch : epochs_)
    if (epoch != step_.epoch) step_.other_epoch = epoch;
  return std::move(step_);
}

}  // namespace

Result<Line> decode_line(std::string_view text) {
  if (text.size() > kLongestLine) return Error{Code::protocol, "too long for a record"};
  return LineReader().read(text);
}

}  // namespace pliant::record
