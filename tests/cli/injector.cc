#include "cli/injector.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>

#include "base/fd.h"

namespace pliant::cli_test {
namespace {

constexpr std::size_t kIp = ETH_HLEN, kTcp = kIp + sizeof(iphdr);

/// A socket that sees and sends whole frames at eth0 of a namespace. The calling thread stays there.
Fd tap(const std::string& name) {
  Fd place(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!place || setns(place.get(), CLONE_NEWNET) != 0) return {};
  Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
  if (!socket || bind(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) return {};
  return socket;
}

std::uint32_t sum_of(std::span<const std::uint8_t> bytes, std::uint32_t sum) {
  for (std::size_t i = 0; i < bytes.size(); ++i) sum += i % 2 ? bytes[i] : std::uint32_t{bytes[i]} << 8;
  return sum;
}

std::uint16_t folded(std::uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return htons(static_cast<std::uint16_t>(~sum));
}

template <class T>
T get(const Injector::Bytes& frame, std::size_t at) {
  T value{};
  std::memcpy(&value, frame.data() + at, sizeof(value));
  return value;
}

template <class T>
void put(Injector::Bytes& frame, std::size_t at, const T& value) {
  std::memcpy(frame.data() + at, &value, sizeof(value));
}

}  // namespace

Injector::Injector(const std::string& one, const std::string& other, std::vector<Bytes> texts,
                   std::vector<std::uint32_t> offsets, std::size_t most)
    : texts_(std::move(texts)), offsets_(std::move(offsets)), most_(most) {
  thread_ = std::thread([this, one, other] { run(one, other); });
  while (!ready_) std::this_thread::yield();
}

Injector::~Injector() {
  over_ = true;
  thread_.join();
}

void Injector::run(const std::string& one, const std::string& other) {
  std::array<Fd, 2> taps = {tap(one), tap(other)};
  if (!taps[0] || !taps[1]) failure_ = "no way to listen";
  ready_ = true;
  if (!failure_.empty()) return;
  while (!over_) {
    std::array<pollfd, 2> events{{{taps[0].get(), POLLIN, 0}, {taps[1].get(), POLLIN, 0}}};
    poll(events.data(), events.size(), 20);
    for (const auto& event : events) {
      if (!event.revents) continue;
      Bytes frame(2048);
      sockaddr_ll from{};
      socklen_t length = sizeof(from);
      auto size =
          recvfrom(event.fd, frame.data(), frame.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length);
      if (size < static_cast<ssize_t>(kTcp + sizeof(tcphdr)) || from.sll_pkttype != PACKET_OUTGOING) continue;
      frame.resize(std::min(frame.size(), static_cast<std::size_t>(size)));
      look_at(event.fd, frame);
    }
  }
}

/// A packet as its sender sends it: what is sent through the same tap arrives in the same place.
void Injector::look_at(int socket, Bytes& frame) {
  if (get<ethhdr>(frame, 0).h_proto != htons(ETH_P_IP)) return;
  auto ip = get<iphdr>(frame, kIp);
  if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_TCP) return;
  auto tcp = get<tcphdr>(frame, kTcp);
  auto payload = ntohs(ip.tot_len) - sizeof(iphdr) - std::size_t{tcp.doff} * 4;
  bool answers = tcp.syn && tcp.ack;                // in the answerer's name, before it has said anything
  bool opens = !tcp.syn && tcp.ack && payload > 0;  // in the caller's name, behind its first words
  if (!answers && !opens) return;
  if (attacked_ == most_) return;
  if (answers) ++attacked_;
  inject(socket, frame, ntohl(tcp.seq) + (answers ? 1 : static_cast<std::uint32_t>(payload)), tcp.ack_seq);
}

void Injector::inject(int socket, Bytes frame, std::uint32_t seq, std::uint32_t ack) {
  for (const auto& text : texts_)
    for (auto offset : offsets_) {
      frame.resize(kTcp + sizeof(tcphdr));
      frame.insert(frame.end(), text.begin(), text.end());
      auto ip = get<iphdr>(frame, kIp);
      ip.tot_len = htons(static_cast<std::uint16_t>(frame.size() - kIp));
      ip.check = 0;
      put(frame, kIp, ip);
      ip.check = folded(sum_of(std::span(frame).subspan(kIp, sizeof(iphdr)), 0));
      put(frame, kIp, ip);
      auto tcp = get<tcphdr>(frame, kTcp);
      tcp.seq = htonl(seq + offset);
      tcp.ack_seq = ack;
      tcp.doff = sizeof(tcphdr) / 4;
      tcp.syn = 0;
      tcp.ack = tcp.psh = 1;
      tcp.window = htons(60'000);
      tcp.check = 0;
      put(frame, kTcp, tcp);
      auto segment = std::span(frame).subspan(kTcp);
      auto sum = sum_of(std::span(frame).subspan(kIp + offsetof(iphdr, saddr), 8), IPPROTO_TCP);
      tcp.check = folded(sum_of(segment, sum + static_cast<std::uint32_t>(segment.size())));
      put(frame, kTcp, tcp);
      [[maybe_unused]] auto sent = send(socket, frame.data(), frame.size(), 0);
    }
}

}  // namespace pliant::cli_test
