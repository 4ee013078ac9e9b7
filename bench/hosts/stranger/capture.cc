#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <tuple>

#include "base/fd.h"
#include "bench/hosts/stranger/lies.h"
#include "bench/hosts/stranger/modes.h"

namespace pliant::stranger {
namespace {

using Flow = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, std::uint16_t>;  // from, to

constexpr std::size_t kProofSize = 58;

struct Segment {
  Flow flow;
  std::string to;
  std::span<const std::uint8_t> words;
};

std::string text_of(std::uint32_t address, std::uint16_t port) {
  std::array<char, INET_ADDRSTRLEN> text{};
  in_addr raw{address};
  inet_ntop(AF_INET, &raw, text.data(), text.size());
  return std::string(text.data()) + ":" + std::to_string(ntohs(port));
}

bool is_proof(std::span<const std::uint8_t> words) { return words[0] == 23 && words[1] == 3 && words[2] == 3; }

/// False if it is not the beginning of what a caller says in a handshake.
bool parse(std::span<const std::uint8_t> packet, Segment& segment) {
  iphdr ip{};
  tcphdr tcp{};
  if (packet.size() < sizeof(ip)) return false;
  std::memcpy(&ip, packet.data(), sizeof(ip));
  std::size_t at = std::size_t{ip.ihl} * 4;
  if (ip.version != 4 || ip.protocol != IPPROTO_TCP || packet.size() < at + sizeof(tcp)) return false;
  std::memcpy(&tcp, packet.data() + at, sizeof(tcp));
  at += std::size_t{tcp.doff} * 4;
  if (packet.size() < at + 8) return false;
  segment = {{ip.saddr, tcp.source, ip.daddr, tcp.dest}, text_of(ip.daddr, tcp.dest), packet.subspan(at)};
  return is_proof(segment.words) || introduction_in(segment.words);
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string out;
  std::array<char, 3> digits{};
  for (auto byte : bytes) {
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    out += digits.data();
  }
  return out;
}

}  // namespace

int capture(const std::string& file) {
  // Not ETH_P_IP: a bridge takes its packets away before those who want only some are asked.
  Fd wire(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  if (!wire) throw std::runtime_error("no way to listen here: is this root?");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  Fd signals(signalfd(-1, &ends, SFD_CLOEXEC));
  std::ofstream out(file);
  std::map<Flow, std::string> hellos;  // whose proof has not passed yet; a packet passes several interfaces
  std::size_t overheard = 0;
  for (;;) {
    std::array<pollfd, 2> ready{{{wire.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}}};
    poll(ready.data(), ready.size(), -1);
    if (ready[1].revents) break;
    std::array<std::uint8_t, 2048> packet;
    auto size = recv(wire.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    Segment segment;
    if (size <= 0 || !parse({packet.data(), static_cast<std::size_t>(size)}, segment)) continue;
    if (!is_proof(segment.words)) hellos.emplace(segment.flow, hex(segment.words));
    auto said = hellos.find(segment.flow);
    if (!is_proof(segment.words) || said == hellos.end()) continue;
    auto proof = segment.words.first(std::min(kProofSize, segment.words.size()));  // data may follow in the packet
    out << segment.to << " " << said->second << " " << hex(proof) << "\n";
    hellos.erase(said);
    ++overheard;
  }
  std::puts(nlohmann::json{{"overheard", overheard}}.dump().c_str());
  return 0;
}

}  // namespace pliant::stranger
