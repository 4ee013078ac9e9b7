#include "wire/messages.h"

#include <fmt/format.h>

#include <bit>
#include <type_traits>

#include "base/bytes.h"

namespace pliant::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// One list of fields per message serves both directions: `Fields` is a Putter or a Getter.
template <class Fields>
void visit(Fields& f, Member& m) {
  f(m.id), f(m.pid), f(m.address, kMaxAddress), f(m.host, kMaxHost), f(m.endpoint, kMaxEndpoint);
}
template <class Fields>
void visit(Fields& f, std::uint64_t& value) {
  f(value);
}
template <class Fields>
void visit(Fields& f, LastView& m) {
  f(m.epoch), f(m.unvoted);
}
template <class Fields>
void visit(Fields& f, ViewNotice& m) {
  f(m.term), f(m.epoch), f(m.seed), f(m.planned), f(m.members, kMaxMembers), f(m.newcomers, kMaxMembers);
  f(m.restarts), f(m.resume_step);
}
template <class Fields>
void visit(Fields& f, Join& m) {
  f(m.job, kMaxName), f(m.id), f(m.pid), f(m.address, kMaxAddress), f(m.cpu_level), f(m.build, kMaxName);
  f(m.layout, kMaxName), visit(f, m.view), f(m.step), f(m.host, kMaxHost), f(m.endpoint, kMaxEndpoint), f(m.knows);
}
template <class Fields>
void visit(Fields& f, Ready& m) {
  f(m.layout, kMaxName), f(m.view);
}
template <class Fields>
void visit(Fields& f, Shares& m) {
  f(m.layout, kMaxName);
}
template <class Fields>
void visit(Fields& f, Plan& m) {
  f(m.term), f(m.base), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, Adopted& m) {
  visit(f, m.view), f(m.step);
}
template <class Fields>
void visit(Fields& f, Over& m) {
  f(m.outcome), f(m.reason, kMaxText);
}
template <class Fields>
void visit(Fields& f, Refusal& m) {
  f(m.reason, kMaxText);
}
template <class Fields>
void visit(Fields& f, Progress& m) {
  f(m.step), f(m.view), f(m.workers), f(m.epoch), f(m.epochs), f(m.steps), f(m.samples);
  f(m.samples_per_second), f(m.loss), f(m.text, kMaxText);
}
template <class Fields>
void visit(Fields& f, Resize& m) {
  f(m.workers), f(m.settled);
}
template <class Fields>
void visit(Fields& f, Replace& m) {
  f(m.id);
}
template <class Fields>
void visit(Fields& f, Answer& m) {
  f(m.ok), f(m.text, kMaxText);
}
template <class Fields>
void visit(Fields& f, AgentHello& m) {
  f(m.job, kMaxName), f(m.host, kMaxName), f(m.slots), f(m.kind, kMaxName);
}
template <class Fields>
void visit(Fields& f, Charter& m) {
  f(m.text, kMaxCharter);
}
template <class Fields>
void visit(Fields& f, Stop& m) {
  f(m.host, kMaxName), f(m.force);
}
template <class Fields>
void visit(Fields& f, Start& m) {
  f(m.id);
}
template <class Fields>
void visit(Fields& f, Started& m) {
  f(m.id), f(m.pid);
}
template <class Fields>
void visit(Fields& f, Ended& m) {
  f(m.id), f(m.good), f(m.words, kMaxText), f(m.taken), visit(f, m.view), f(m.outcome);
}
template <class Fields>
void visit(Fields& f, Parted& m) {
  f(m.id), f(m.goodbye);
}
template <class Fields>
void visit(Fields& f, Headcount& m) {
  f(m.kind, kMaxName), f(m.starting), f(m.training), f(m.waiting);
}
template <class Fields>
void visit(Fields& f, JobState& m) {
  visit(f, m.view), f(m.wanted), f(m.spare), f(m.headcount, kMaxKinds);
}
template <class Fields>
void visit(Fields& f, Claim& m) {
  f(m.term), f(m.recover);
}
template <class Fields>
void visit(Fields& f, Promise& m) {
  f(m.term), visit(f, m.view), f(m.stored_under), visit(f, m.stored), f(m.holds);
}
template <class Fields>
void visit(Fields& f, Decline& m) {
  f(m.term), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, Propose& m) {
  f(m.term), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, Stored& m) {
  f(m.term), f(m.hash);
}
template <class Fields>
void visit(Fields& f, InForce& m) {
  f(m.term), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, PeerHello& m) {
  f(m.job, kMaxName), f(m.id);
}
template <class Fields>
void visit(Fields& f, Entered& m) {
  f(m.view_hash), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, Dead& m) {
  f(m.id), visit(f, m.view);
}
template <class Fields>
void visit(Fields& f, RegionNotice& m) {
  f(m.view_hash), f(m.name, kMaxName), f(m.bytes), f(m.stripe), f(m.results), f(m.generation);
}
template <class Fields>
void visit(Fields& f, Bye& m) {
  f(m.outcome), f(m.step), f(m.view);
}
template <class Fields>
void visit(Fields& f, Unreached& m) {
  f(m.id);
}
template <class Fields>
void visit(Fields& f, LoopEnded& m) {
  f(m.outcome), f(m.step);
}
template <class Fields>
void visit(Fields&, Pulse&) {}

struct Putter {
  ByteWriter out;
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T value) { out.put(value); }
  void operator()(const std::string& text, std::size_t most) { out.put_text(std::string_view(text).substr(0, most)); }
  template <class T>
  void operator()(std::vector<T>& list, std::size_t most) {
    PLIANT_ASSERT(list.size() <= most);
    out.put(static_cast<std::uint32_t>(list.size()));
    for (auto& item : list) visit(*this, item);
  }
};

struct Getter {
  ByteReader in;
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T& value) { value = in.get<T>(); }
  void operator()(std::string& text, std::size_t most) { text = in.get_text(most); }
  template <class T>
  void operator()(std::vector<T>& list, std::size_t most) {
    auto count = in.get<std::uint32_t>();
    if (count > most) count = UINT32_MAX;  // runs into the end of the packet at once
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) visit(*this, list.emplace_back());
  }
};

template <std::size_t kKind = 0>
Result<Message> decode_as(std::size_t kind, Getter& fields) {
  if constexpr (kKind == std::variant_size_v<Message>) {
    return Error{Code::protocol, fmt::format("unknown message kind {}", kind)};
  } else {
    if (kind != kKind) return decode_as<kKind + 1>(kind, fields);
    std::variant_alternative_t<kKind, Message> message;
    visit(fields, message);
    if (!fields.in.finished()) return Error{Code::protocol, fmt::format("malformed message of kind {}", kind)};
    return Message(std::move(message));
  }
}

}  // namespace

std::vector<std::uint8_t> encode(const Message& message) {
  Putter fields;
  fields(kMagic), fields(kVersion), fields(static_cast<std::uint16_t>(message.index()));
  std::visit([&](auto copy) { visit(fields, copy); }, message);
  auto packet = std::move(fields.out).take();
  PLIANT_ASSERT(packet.size() <= kMaxPacket);
  return packet;
}

Result<Message> decode(std::span<const std::uint8_t> packet) {
  if (packet.size() > kMaxPacket) return Error{Code::protocol, "packet too long"};
  Getter fields{ByteReader(packet)};
  auto magic = fields.in.get<std::uint32_t>();
  auto version = fields.in.get<std::uint16_t>();
  auto kind = fields.in.get<std::uint16_t>();
  if (!fields.in.ok() || magic != kMagic) return Error{Code::protocol, "not a Pliant message"};
  if (version != kVersion)
    return Error{Code::protocol, fmt::format("protocol version {}, this is version {}", version, kVersion)};
  return decode_as(kind, fields);
}

}  // namespace pliant::wire
