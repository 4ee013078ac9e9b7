#include "session/handover.h"

#include "base/bytes.h"
#include "wire/messages.h"

namespace pliant::session {
namespace {

constexpr std::uint32_t kMostRanges = 1 << 20;
constexpr std::uint32_t kMostItems = 1 << 20;
constexpr std::uint32_t kMostDimensions = 64;
constexpr std::size_t kLongestItem = 4096;
constexpr std::uint32_t kMostMissing = 256;
constexpr std::size_t kMostAdaptation = 512 << 20;

std::string text_of(ByteWriter out) {
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}

ByteReader reader_of(std::string_view bytes) {
  return ByteReader({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

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

void put(ByteWriter& out, const Deal& deal) {
  auto view = wire::encode(membership::notice_of(deal.to));
  out.put_text({reinterpret_cast<const char*>(view.data()), view.size()});
  for (auto share : deal.shares) out.put(share);
}

Result<Deal> get_deal(ByteReader& in) {
  auto view = get_view(in);
  if (!view.ok()) return view.error();
  auto deal = Deal::even(std::move(view).value());
  for (auto& share : deal.shares) share = in.get<std::uint32_t>();
  return deal;
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

}  // namespace

std::string encode(const Arrival& arrival) {
  const auto& report = arrival.report;
  ByteWriter out;
  for (bool flag : {report.blank, report.in_step, report.complete, report.closed})
    out.put(static_cast<std::uint8_t>(flag));
  out.put(report.step), out.put(report.layout), out.put(report.digest);
  out.put(static_cast<std::uint32_t>(arrival.missing.size()));
  for (auto number : arrival.missing) out.put(number);
  out.put_text(std::string_view(arrival.words).substr(0, wire::kMaxText));
  return text_of(std::move(out));
}

Result<Arrival> decode_arrival(std::string_view bytes) {
  auto in = reader_of(bytes);
  Arrival arrival;
  auto& report = arrival.report;
  for (auto* flag : {&report.blank, &report.in_step, &report.complete, &report.closed})
    *flag = in.get<std::uint8_t>() != 0;
  report.step = in.get<std::uint64_t>();
  report.layout = in.get<std::uint64_t>();
  report.digest = in.get<std::uint64_t>();
  auto missing = in.get<std::uint32_t>();
  if (missing > kMostMissing) return Error{Code::protocol, "first words about too many reductions"};
  for (std::uint32_t i = 0; i < missing && in.ok(); ++i) arrival.missing.push_back(in.get<std::uint64_t>());
  arrival.words = in.get_text(wire::kMaxText);
  if (!in.finished()) return Error{Code::protocol, "malformed first words"};
  return arrival;
}

Deal Deal::even(membership::View to) {
  Shares shares(to.members.size(), kUsualShare);
  return {std::move(to), std::move(shares)};
}

Deal Deal::among(membership::View next) const {
  auto deal = even(std::move(next));
  for (std::size_t rank = 0; rank < deal.shares.size(); ++rank)
    if (int before = to.rank_of(deal.to.members[rank].id); before >= 0)
      deal.shares[rank] = shares[static_cast<std::size_t>(before)];
  return deal;
}

std::string encode(const Luggage& luggage) {
  ByteWriter out;
  put(out, luggage.deal);
  for (auto word : {luggage.step, luggage.samples, luggage.skipped, luggage.lineage, luggage.seed, luggage.batch.local,
                    luggage.batch.global, luggage.batch.limit, luggage.steps.epochs, luggage.steps.steps})
    out.put(word);
  out.put(static_cast<std::uint8_t>(luggage.ledger.has_value()));
  if (luggage.ledger) put(out, luggage.ledger->snapshot());
  out.put_text(luggage.adaptation);
  out.put(static_cast<std::uint32_t>(luggage.items.size()));
  for (const auto& item : luggage.items) put(out, item);
  return text_of(std::move(out));
}

Result<Luggage> decode_luggage(std::string_view bytes) {
  auto in = reader_of(bytes);
  Luggage luggage;
  auto deal = get_deal(in);
  if (!deal.ok()) return deal.error();
  luggage.deal = std::move(deal).value();
  for (auto* word :
       {&luggage.step, &luggage.samples, &luggage.skipped, &luggage.lineage, &luggage.seed, &luggage.batch.local,
        &luggage.batch.global, &luggage.batch.limit, &luggage.steps.epochs, &luggage.steps.steps})
    *word = in.get<std::uint64_t>();
  if (in.get<std::uint8_t>()) {
    auto ledger = get_ledger(in);
    if (!ledger.ok()) return ledger.error();
    luggage.ledger = std::move(ledger).value();
  }
  luggage.adaptation = in.get_text(kMostAdaptation);
  auto items = in.get<std::uint32_t>();
  if (items > kMostItems) return Error{Code::protocol, "too many items of state"};
  for (std::uint32_t i = 0; i < items && in.ok(); ++i) {
    auto item = get_item(in);
    if (!item.ok()) return item.error();
    luggage.items.push_back(std::move(item).value());
  }
  if (!in.finished()) return Error{Code::protocol, "malformed words about the job"};
  return luggage;
}

}  // namespace pliant::session
