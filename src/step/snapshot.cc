#include "step/snapshot.h"

#include <algorithm>

#include "base/bytes.h"
#include "record/line.h"
#include "wire/messages.h"

namespace pliant::step {
namespace {

constexpr std::uint32_t kMostRanges = 1 << 20;
constexpr std::uint32_t kMostItems = 1 << 20;
constexpr std::uint32_t kMostDimensions = 64;
constexpr std::size_t kLongestItem = 4096;
constexpr std::size_t kMostAdaptation = 512 << 20;
constexpr std::uint32_t kMostUnwritten = 64;

void put(ByteWriter& out, const Ledger::Snapshot& ledger) {
  out.put(ledger.samples), out.put(ledger.epoch), out.put(ledger.fresh);
  out.put(static_cast<std::uint32_t>(ledger.returned.size()));
  for (const auto& range : ledger.returned) out.put(range.begin), out.put(range.end);
}

Result<Ledger> get_ledger(ByteReader& in) {
  Ledger::Snapshot ledger;
  ledger.samples = in.get<std::uint64_t>();
  ledger.epoch = in.get<std::uint64_t>();
  ledger.fresh = in.get<std::uint64_t>();
  auto ranges = in.get<std::uint32_t>();
  if (ranges > kMostRanges) return Error{Code::protocol, "a ledger with too many ranges"};
  for (std::uint32_t i = 0; i < ranges && in.ok(); ++i) {
    auto begin = in.get<std::uint64_t>();
    ledger.returned.push_back({begin, in.get<std::uint64_t>()});
  }
  if (!in.ok()) return Error{Code::protocol, "a ledger cut short"};
  return Ledger::restore(std::move(ledger));
}

Result<membership::View> get_view(ByteReader& in) {
  auto text = in.get_text(wire::kMaxPacket);
  auto message = wire::decode({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  if (!message.ok()) return message.error();
  const auto* notice = std::get_if<wire::ViewNotice>(&message.value());
  if (!notice) return Error{Code::protocol, "expected a view"};
  return membership::view_from(*notice);
}

void put(ByteWriter& out, const LeaseAssignment& assignment) {
  auto view = wire::encode(membership::notice_of(assignment.to));
  out.put_text({reinterpret_cast<const char*>(view.data()), view.size()});
  for (auto share : assignment.shares) out.put(share);
}

Result<LeaseAssignment> get_assignment(ByteReader& in) {
  auto view = get_view(in);
  if (!view.ok()) return view.error();
  auto assignment = LeaseAssignment::even(std::move(view).value());
  for (auto& share : assignment.shares) share = in.get<std::uint32_t>();
  return assignment;
}

void put(ByteWriter& out, const StateItem& item) {
  out.put_text(item.name);
  out.put(static_cast<std::uint8_t>(item.dtype)), out.put(static_cast<std::uint8_t>(item.role));
  out.put(static_cast<std::uint64_t>(item.count));
  out.put(static_cast<std::uint32_t>(item.shape.size()));
  for (auto dimension : item.shape) out.put(dimension);
}

Result<StateItem> get_item(ByteReader& in) {
  StateItem item;
  item.name = in.get_text(kLongestItem);
  auto dtype = in.get<std::uint8_t>();
  auto role = in.get<std::uint8_t>();
  item.count = in.get<std::uint64_t>();
  auto dimensions = in.get<std::uint32_t>();
  if (!in.ok() || dtype >= kDtypes || role > static_cast<std::uint8_t>(Role::other) || dimensions > kMostDimensions)
    return Error{Code::protocol, "a malformed item of state"};
  item.dtype = static_cast<Dtype>(dtype);
  item.role = static_cast<Role>(role);
  for (std::uint32_t i = 0; i < dimensions && in.ok(); ++i) item.shape.push_back(in.get<std::uint64_t>());
  return item;
}

/// As they will be written, less the newline.
void put(ByteWriter& out, const record::StepRecord& record) {
  std::string line;
  record::append_line(record, line);
  out.put_text(std::string_view(line).substr(0, line.size() - 1));
}

Result<record::StepRecord> get_record(ByteReader& in) {
  auto line = record::decode_line(in.get_text(record::kLongestLine));
  if (!line.ok()) return line.error();
  auto* step = std::get_if<record::StepRecord>(&line.value());
  if (!step) return Error{Code::protocol, "expected the record of a step"};
  return std::move(*step);
}

}  // namespace

std::string encode(const JobSnapshot& snapshot) {
  ByteWriter out;
  const auto& state = snapshot.state;
  put(out, state.assignment);
  for (auto word : {state.step, state.samples, state.skipped, state.lineage, state.seed, state.loop, state.batch.local,
                    state.batch.global, state.batch.limit, state.until.epochs, state.until.steps})
    out.put(word);
  out.put(static_cast<std::uint8_t>(state.ledger.has_value()));
  if (state.ledger) put(out, state.ledger->snapshot());
  out.put_text(snapshot.adaptation);
  out.put(static_cast<std::uint32_t>(snapshot.items.size()));
  for (const auto& item : snapshot.items) put(out, item);
  out.put(static_cast<std::uint32_t>(snapshot.unwritten.size()));
  for (const auto& record : snapshot.unwritten) put(out, record);
  out.put(static_cast<std::uint8_t>(snapshot.begins_loop));
  return text_of(std::move(out));
}

Result<JobSnapshot> decode_snapshot(std::string_view bytes) {
  auto in = reader_of(bytes);
  JobSnapshot snapshot;
  auto& state = snapshot.state;
  auto assignment = get_assignment(in);
  if (!assignment.ok()) return assignment.error();
  state.assignment = std::move(assignment).value();
  for (auto* word :
       {&state.step, &state.samples, &state.skipped, &state.lineage, &state.seed, &state.loop, &state.batch.local,
        &state.batch.global, &state.batch.limit, &state.until.epochs, &state.until.steps})
    *word = in.get<std::uint64_t>();
  if (in.get<std::uint8_t>()) {
    auto ledger = get_ledger(in);
    if (!ledger.ok()) return ledger.error();
    state.ledger = std::move(ledger).value();
  }
  snapshot.adaptation = in.get_text(kMostAdaptation);
  auto items = in.get<std::uint32_t>();
  if (items > kMostItems) return Error{Code::protocol, "too many items of state"};
  for (std::uint32_t i = 0; i < items && in.ok(); ++i) {
    auto item = get_item(in);
    if (!item.ok()) return item.error();
    snapshot.items.push_back(std::move(item).value());
  }
  auto unwritten = in.get<std::uint32_t>();
  if (unwritten > kMostUnwritten) return Error{Code::protocol, "too many records that are not written"};
  for (std::uint32_t i = 0; i < unwritten && in.ok(); ++i) {
    auto record = get_record(in);
    if (!record.ok()) return record.error();
    snapshot.unwritten.push_back(std::move(record).value());
  }
  snapshot.begins_loop = in.get<std::uint8_t>() != 0;
  if (!in.finished()) return Error{Code::protocol, "malformed words about the job"};
  return snapshot;
}

}  // namespace pliant::step
