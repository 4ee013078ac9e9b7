#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>

#include "base/fd.h"
#include "bench/hosts/stranger/lies.h"
#include "bench/hosts/stranger/modes.h"
#include "net/tcp.h"

namespace pliant::stranger {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPatience = 10s;  // who is still connected then is a fault of the other side
constexpr std::size_t kMostOpen = 8000;
constexpr int kAtOnce = 64;  // connections opened between two looks at the others

struct Target {
  std::string name;
  sockaddr_in address{};
};

/// What became of the connections of one kind.
struct Tally {
  std::uint64_t made = 0;         // or tried
  std::uint64_t failed = 0;       // no connection came about
  std::uint64_t turned_away = 0;  // by the other side
  std::uint64_t hung_up = 0;      // by this one
  std::uint64_t challenged = 0;   // got a challenge
  std::uint64_t let_in = 0;       // heard more after a wrong proof, or stayed connected
  std::uint64_t kept = 0;         // stayed connected without a proof
};

struct Connection {
  Fd socket;
  std::uint64_t number = 0;
  Lie lie;
  Clock::time_point since;
  bool connected = false, proved = false;
  Bytes heard;
};

int from_hex(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

Bytes bytes_from(const std::string& hex) {
  Bytes out;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
    out.push_back(static_cast<std::uint8_t>(from_hex(hex[at]) << 4 | from_hex(hex[at + 1])));
  return out;
}

std::vector<Overheard> read_overheard(const std::string& path) {
  std::vector<Overheard> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string to, hello, proof;
    if (words >> to >> hello >> proof) all.push_back({to, bytes_from(hello), bytes_from(proof)});
  }
  return all;
}

class Attack {
 public:
  explicit Attack(const AttackOptions& options)
      : options_(options),
        liar_(options.job, read_overheard(options.overheard), options.seed),
        random_(options.seed),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const auto& text : options.targets) {
      auto endpoint = net::parse_endpoint(text).or_throw();
      Target target{text};
      target.address.sin_family = AF_INET;
      target.address.sin_port = htons(endpoint.port);
      if (inet_pton(AF_INET, endpoint.address.c_str(), &target.address.sin_addr) != 1)
        throw std::runtime_error(text + " is no IPv4 address");
      targets_.push_back(target);
    }
  }

  void run() {
    began_ = Clock::now();
    while (made_ < options_.connections || open_ > 0) {
      for (int i = 0; i < kAtOnce && made_ < due() && open_ < kMostOpen; ++i) connect_one();
      look(made_ < due() && open_ < kMostOpen ? 0 : 2);
      give_up_on_the_oldest();
    }
    seconds_ = seconds_since_start();
  }

  nlohmann::json result() const;

 private:
  double seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  std::uint64_t due() const {
    auto by_rate = static_cast<std::uint64_t>(options_.rate * seconds_since_start());
    return std::min(options_.connections, options_.wave + by_rate);
  }
  void connect_one();
  void look(int milliseconds);
  void on_event(Connection& one, std::uint32_t events);
  void speak(Connection& one);
  void hear(Connection& one);
  void say(Connection& one, const Bytes& words);
  void end(Connection& one, std::uint64_t Tally::*how);
  void give_up_on_the_oldest();
  Tally& tally(const Connection& one) { return tallies_[static_cast<std::size_t>(one.lie.kind)]; }

  AttackOptions options_;
  Liar liar_;
  std::mt19937_64 random_;
  Fd epoll_;
  std::vector<Target> targets_;
  std::vector<Connection> connections_;               // by descriptor
  std::deque<std::pair<std::uint64_t, int>> oldest_;  // number and descriptor, in the order of their making
  std::unordered_set<std::uint64_t> challenges_;      // the beginnings of their random numbers
  std::array<Tally, kNames.size()> tallies_{};
  std::uint64_t made_ = 0, repeated_ = 0;
  std::size_t open_ = 0, most_open_ = 0;
  Clock::time_point began_;
  double seconds_ = 0;
};

void Attack::connect_one() {
  const auto& target = targets_[made_ % targets_.size()];
  auto kind = made_ < options_.wave ? Kind::silent : static_cast<Kind>(random_() % kNames.size());
  ++made_;
  Connection one;
  one.lie = liar_.tell(kind, target.name);
  one.number = made_;
  one.since = Clock::now();
  ++tally(one).made;
  one.socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!one.socket) {
    ++tally(one).failed;
    return;
  }
  int fd = one.socket.get(), yes = 1;
  linger at_once{1, 0};  // no port shall wait for its last packets
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&target.address), sizeof(target.address)) != 0 &&
      errno != EINPROGRESS) {
    ++tally(one).failed;
    return;
  }
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  if (connections_.size() <= static_cast<std::size_t>(fd)) connections_.resize(static_cast<std::size_t>(fd) + 1);
  oldest_.emplace_back(one.number, fd);
  connections_[static_cast<std::size_t>(fd)] = std::move(one);
  most_open_ = std::max(most_open_, ++open_);
}

void Attack::look(int milliseconds) {
  std::array<epoll_event, 256> events;
  int count = epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds);
  for (int i = 0; i < count; ++i) {
    auto& one = connections_[static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.fd)];
    if (one.socket) on_event(one, events[static_cast<std::size_t>(i)].events);
  }
}

void Attack::on_event(Connection& one, std::uint32_t events) {
  if (!one.connected) return speak(one);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) hear(one);
}

void Attack::speak(Connection& one) {
  int failure = 0;
  socklen_t length = sizeof(failure);
  getsockopt(one.socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
  if (failure != 0) return end(one, &Tally::failed);
  one.connected = true;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = one.socket.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, one.socket.get(), &event);
  say(one, one.lie.first);
  if (one.lie.hangs_up) end(one, &Tally::hung_up);
}

/// A few bytes on a fresh connection fit; if the other side has gone already, hear() will find out.
void Attack::say(Connection& one, const Bytes& words) {
  if (words.empty()) return;
  [[maybe_unused]] auto sent = ::send(one.socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Attack::hear(Connection& one) {
  std::array<std::uint8_t, 4096> chunk;
  auto size = recv(one.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return end(one, &Tally::turned_away);
  if (one.proved) return end(one, &Tally::let_in);  // nobody has a word for a liar
  one.heard.insert(one.heard.end(), chunk.begin(), chunk.begin() + size);
  if (one.heard.size() < kAnswerSize) return;
  ++tally(one).challenged;
  std::uint64_t number = 0;
  std::memcpy(&number, one.heard.data() + kRandomAt, sizeof(number));
  if (!challenges_.insert(number).second) ++repeated_;
  say(one, one.lie.second);
  one.proved = !one.lie.second.empty();
}

void Attack::end(Connection& one, std::uint64_t Tally::*how) {
  ++(tally(one).*how);
  one = Connection{};
  --open_;
}

void Attack::give_up_on_the_oldest() {
  auto now = Clock::now();
  while (!oldest_.empty()) {
    auto [number, fd] = oldest_.front();
    auto& one = connections_[static_cast<std::size_t>(fd)];
    bool ended = !one.socket || one.number != number;
    if (!ended && now - one.since < kPatience) return;
    if (!ended) end(one, !one.connected ? &Tally::failed : one.proved ? &Tally::let_in : &Tally::kept);
    oldest_.pop_front();
  }
}

nlohmann::json Attack::result() const {
  nlohmann::json kinds;
  for (std::size_t at = 0; at < kNames.size(); ++at) {
    const auto& seen = tallies_[at];
    kinds[kNames[at]] = {{"made", seen.made},       {"failed", seen.failed},         {"turned_away", seen.turned_away},
                         {"hung_up", seen.hung_up}, {"challenged", seen.challenged}, {"let_in", seen.let_in},
                         {"kept", seen.kept}};
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {{"connections", made_},
          {"seconds", seconds_},
          {"cpu_s", seconds(used.ru_utime) + seconds(used.ru_stime)},
          {"most_open", most_open_},
          {"repeated_challenges", repeated_},
          {"kinds", kinds}};
}

}  // namespace

int attack(const AttackOptions& options) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  Attack attack(options);
  attack.run();
  std::puts(attack.result().dump().c_str());
  return 0;
}

}  // namespace pliant::stranger
