#include "session/record_line.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace pliant::session {
namespace {

using nlohmann::json;

void append_number(double value, std::string& out) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), value);
  else
    out += "null";
}

double finite(double value) { return std::isfinite(value) ? value : 0; }

void append_samples(const StepRecord& record, std::string& out) {
  for (const auto& part : record.samples) {
    if (out.back() == '}') out += ',';
    fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"({{"worker":{},"epoch":{},"ranges":[)"), part.worker,
                   record.epoch);
    for (const auto& range : part.ranges) {
      if (out.back() == ']') out += ',';
      fmt::format_to(std::back_inserter(out), FMT_COMPILE("[{},{}]"), range.begin, range.end);
    }
    out += "]}";
  }
}

enum Field : unsigned {
  kKind,
  kEvent,
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
  kRanges,
  kUnknown
};
constexpr std::array<std::string_view, kUnknown> kNames = {
    "kind",    "event",        "t",  "step", "view",   "view_hash", "worker",  "rank",  "size", "epoch", "dataset",
    "samples", "global_batch", "lr", "loss", "digest", "stall_ms",  "lineage", "ranges"};

constexpr unsigned bit(Field field) { return 1U << field; }
constexpr unsigned kOfContribution = bit(kWorker) | bit(kEpoch) | bit(kRanges);
constexpr unsigned kOfRecord = (bit(kRanges) - 1) & ~bit(kEvent);  // of a step; all of them are required

Field field_named(std::string_view name) {
  unsigned field = 0;
  while (field < kUnknown && kNames[field] != name) ++field;
  return static_cast<Field>(field);
}

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

/// Takes the parser's events as they come and fills a Line, without a tree of values in between. Every event returns
/// false to stop the parser, after having said why.
class LineReader {
 public:
  Result<Line> read(std::string_view text) {
    bool whole = json::sax_parse(text.begin(), text.end(), this);
    if (whole) check_kind();
    if (!whole || !why_.empty()) return Error{Code::protocol, why_};
    find_other_epoch();
    return std::move(line_);
  }

  // ---- what the parser calls ----
  bool null() { return skip_ > 0 || number(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool) { return skip_ > 0 || skips_this() || wrong(); }
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
  // Each is entered from the one before it and left to it.
  enum Place { kOutside, kInRecord, kInSamples, kInContribution, kInRanges, kInRange };

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
  std::uint64_t* whole_number();
  void check_kind();
  void find_other_epoch();

  Line line_;
  std::string why_;
  std::string kind_;
  Place place_ = kOutside;
  Field field_ = kUnknown;             // whose value comes next
  std::uint64_t skip_ = 0;             // open brackets of a value that nobody asked for
  unsigned seen_ = 0;                  // fields of the record
  unsigned seen_in_part_ = 0;          // fields of the contribution
  int numbers_ = 0;                    // of the range
  std::vector<std::uint64_t> epochs_;  // of the contributions
};

/// Where a whole number of the current field goes; nullptr if the field has none.
std::uint64_t* LineReader::whole_number() {
  auto& record = line_.record;
  if (place_ == kInContribution && field_ == kWorker) return &record.samples.back().worker;
  if (place_ == kInContribution && field_ == kEpoch) return &epochs_.back();
  if (place_ != kInRecord) return nullptr;
  switch (field_) {
    case kStep:
      return &record.step;
    case kView:
      return &record.view;
    case kWorker:
      return &record.worker;
    case kEpoch:
      return &record.epoch;
    case kDataset:
      return &record.dataset;
    case kGlobalBatch:
      return &record.global_batch;
    case kLineage:
      return &record.lineage;
    default:
      return nullptr;
  }
}

bool LineReader::bound(std::uint64_t value) {
  auto most = field_ == kWorker                    ? std::numeric_limits<std::uint64_t>::max()
              : field_ == kRank || field_ == kSize ? std::numeric_limits<int>::max()
                                                   : kLargestNumber;
  return value <= most || fail(fmt::format("'{}' is absurd", kNames[field_]));
}

bool LineReader::part_of_range(std::uint64_t value) {
  auto& range = line_.record.samples.back().ranges.back();
  if (value > kLargestNumber || ++numbers_ > 2) return wrong();
  (numbers_ == 1 ? range.begin : range.end) = value;
  return true;
}

bool LineReader::number_unsigned(std::uint64_t value) {
  if (skip_ > 0 || skips_this()) return true;
  if (place_ == kInRange) return part_of_range(value);
  auto* target = whole_number();
  bool small = place_ == kInRecord && (field_ == kRank || field_ == kSize);
  if (!target && !small) return number(static_cast<double>(value));
  if (!bound(value)) return false;
  if (target)
    *target = value;
  else
    (field_ == kRank ? line_.record.rank : line_.record.size) = static_cast<int>(value);
  return true;
}

/// A number that need not be whole, or null.
bool LineReader::number(double value) {
  if (skips_this()) return true;
  if (place_ != kInRecord) return wrong();
  auto& record = line_.record;
  if (field_ == kTime && std::isfinite(value))
    record.t = value;
  else if (field_ == kLr)
    record.lr = value;
  else if (field_ == kLoss)
    record.loss = value;
  else if (field_ == kStall)
    record.stall_ms = value;
  else
    return wrong();
  return true;
}

bool LineReader::string(std::string& text) {
  if (skip_ > 0 || skips_this()) return true;
  if (place_ != kInRecord) return wrong();
  if (field_ == kViewHash) return parse_hex(text, line_.record.view_hash) || wrong();
  if (field_ == kDigest) return parse_hex(text, line_.record.digest) || wrong();
  if (field_ == kKind) kind_ = text;
  return field_ == kKind || field_ == kEvent || wrong();
}

bool LineReader::start_object(std::size_t) {
  if (skip_ > 0 || skips_this()) return enter_skipped();
  if (place_ == kOutside) {
    place_ = kInRecord;
  } else if (place_ == kInSamples) {
    place_ = kInContribution;
    seen_in_part_ = 0;
    line_.record.samples.emplace_back();
    epochs_.emplace_back();
  } else {
    return wrong();
  }
  return true;
}

bool LineReader::end_object() {
  if (skip_ > 0) return leave_skipped();
  if (place_ == kInContribution && seen_in_part_ != kOfContribution)
    return fail("a part of 'samples' lacks its worker, epoch or ranges");
  place_ = place_ == kInContribution ? kInSamples : kOutside;
  field_ = kSamples;
  return true;
}

bool LineReader::start_array(std::size_t) {
  if (skip_ > 0 || skips_this()) return enter_skipped();
  if (place_ == kInRecord && field_ == kSamples) {
    place_ = kInSamples;
  } else if (place_ == kInContribution && field_ == kRanges) {
    place_ = kInRanges;
  } else if (place_ == kInRanges) {
    place_ = kInRange;
    numbers_ = 0;
    line_.record.samples.back().ranges.emplace_back();
  } else {
    return wrong();
  }
  return true;
}

bool LineReader::end_array() {
  if (skip_ > 0) return leave_skipped();
  if (place_ == kInRange) {
    const auto& range = line_.record.samples.back().ranges.back();
    if (numbers_ != 2 || range.begin > range.end) return wrong();
  }
  place_ = static_cast<Place>(place_ - 1);
  return true;
}

bool LineReader::key(std::string& name) {
  if (skip_ > 0) return true;
  field_ = field_named(name);
  if (place_ == kInContribution && !(kOfContribution & bit(field_))) field_ = kUnknown;
  if (place_ == kInRecord && field_ == kRanges) field_ = kUnknown;
  if (field_ == kUnknown) return true;
  auto& seen = place_ == kInContribution ? seen_in_part_ : seen_;
  if (seen & bit(field_)) return fail(fmt::format("'{}' is there twice", kNames[field_]));
  seen |= bit(field_);
  return true;
}

void LineReader::check_kind() {
  if (kind_ == "event") {
    line_.kind = Line::Kind::event;
    if (!(seen_ & bit(kEvent))) fail("'event' is missing");
    return;
  }
  if (kind_ != "step") {
    fail("not a record");
    return;
  }
  for (unsigned field = 0; field < kUnknown; ++field)
    if (kOfRecord & ~seen_ & 1U << field) fail(fmt::format("'{}' is missing", kNames[field]));
}

void LineReader::find_other_epoch() {
  for (auto epoch : epochs_)
    if (epoch != line_.record.epoch) line_.other_epoch = epoch;
}

}  // namespace

void append_line(const StepRecord& record, std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 FMT_COMPILE(R"({{"kind":"step","t":{:.6f},"step":{},"view":{},"view_hash":"{:016x}","worker":{},)"
                             R"("rank":{},"size":{},"epoch":{},"dataset":{},"samples":[)"),
                 finite(record.t), record.step, record.view, record.view_hash, record.worker, record.rank, record.size,
                 record.epoch, record.dataset);
  append_samples(record, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(],"global_batch":{},"lr":)"), record.global_batch);
  append_number(record.lr, out);
  out += R"(,"loss":)";
  append_number(record.loss, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(R"(,"digest":"{:016x}","stall_ms":)"), record.digest);
  append_number(record.stall_ms, out);
  fmt::format_to(std::back_inserter(out), FMT_COMPILE(",\"lineage\":{}}}\n"), record.lineage);
}

std::string event_line(double t, const std::string& what, std::int64_t worker, const std::string& text) {
  auto quoted = [](const std::string& words) {
    return json(words).dump(-1, ' ', false, json::error_handler_t::replace);
  };
  auto line = fmt::format(R"({{"kind":"event","t":{:.6f},"event":{})", finite(t), quoted(what));
  if (worker >= 0) line += fmt::format(R"(,"worker":{})", worker);
  return line + fmt::format(R"(,"text":{}}})", quoted(text)) + "\n";
}

Result<Line> decode_line(std::string_view text) {
  if (text.size() > kLongestLine) return Error{Code::protocol, "too long for a record"};
  return LineReader().read(text);
}

}  // namespace pliant::session
