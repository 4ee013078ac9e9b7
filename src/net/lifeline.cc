#include "net/lifeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/futex.h"

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING, in the flags of /proc/PID/stat
constexpr int kQuietLooks = 20;          // between two reports of one standstill
// The threads of a killed process end one after the other, as they get a core: soon, but on a crowded machine later.
constexpr Nanos kEagerly = 200us;
constexpr Nanos kPatiently = 5ms;
constexpr int kEagerLooks = 50;

/// The flags of a task as its "stat" shows them. Behind the name, which may contain anything but ends with the last
/// parenthesis, come: state, ppid, pgrp, session, tty, tpgid, flags.
std::optional<std::uint64_t> flags_of(const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  auto size = file ? read(file.get(), text, sizeof(text) - 1) : -1;
  if (size <= 0) return std::nullopt;
  std::string_view all(text, static_cast<std::size_t>(size));
  auto at = all.rfind(')');
  for (int field = 0; field < 7 && at != std::string_view::npos; ++field) at = all.find(' ', at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  return std::strtoull(std::string(all.substr(at + 1, 20)).c_str(), nullptr, 10);
}

/// The threads of a process, or nothing if one of them can still run or nobody can tell.
std::optional<std::set<std::string>> exiting_threads(const std::string& tasks) {
  std::set<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(tasks, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    auto name = entry->path().filename().string();
    auto flags = flags_of(entry->path().string() + "/stat");
    if (flags && !(*flags & kExiting)) return std::nullopt;
    names.insert(std::move(name));  // without flags: gone in between
  }
  if (problem) return std::nullopt;
  return names;
}

}  // namespace

bool is_exiting(pid_t pid) {
  auto tasks = fmt::format("/proc/{}/task", pid);
  auto first = exiting_threads(tasks);
  if (!first || first->empty()) return false;
  // A thread that was made while the others were looked at is in here; and who is exiting makes no more.
  auto second = exiting_threads(tasks);
  return second && std::includes(first->begin(), first->end(), second->begin(), second->end());
}

/// What is in the memory of a lifeline. The kernel follows the list when the thread that holds it ends, however it
/// ends; to other processes its addresses mean nothing.
struct Lifeline::Line {
  robust_list_head head{};
  robust_list entry{};
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint64_t> note{0};
  std::atomic<std::uint64_t> beats{0};
  std::atomic<std::uint32_t> beating{0};  // the thread that counts them
};

Lifeline::Line& Lifeline::line_in(const Mapping& memory) {
  return *std::launder(reinterpret_cast<Line*>(memory.data()));
}

Result<std::unique_ptr<Lifeline>> Lifeline::create(Events events) {
  auto own = create_segment("pliant:lifeline", kPage, Backing::reserved);
  if (!own.ok()) return own.error();
  new (own.value().memory.data()) Line{};
  (void)mlock(own.value().memory.data(), kPage);  // where that is not allowed, a swapped page delays a beat
  std::unique_ptr<Lifeline> made(new Lifeline(std::move(own).value(), std::move(events)));
  std::promise<void> promise;
  auto held = promise.get_future();
  made->thread_ = std::thread([line = made.get(), promise = std::move(promise)]() mutable {
    line->hold();
    promise.set_value();
    line->run();
    line->let_go();
  });
  std::promise<void> first_beat;
  auto beats = first_beat.get_future();
  made->beating_ = std::thread([line = made.get(), promise = std::move(first_beat)]() mutable { line->beat(promise); });
  held.wait();  // before anybody can watch it
  beats.wait();
  return made;
}

Lifeline::~Lifeline() {
  stopping_ = true;
  nudge();
  thread_.join();
  beating_.join();
}

void Lifeline::nudge() {
  bell_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&bell_);
}

/// The word is this thread's; that somebody sleeps on it is always said, so that the kernel always wakes.
void Lifeline::hold() {
  auto& line = line_in(own_.memory);
  line.head.list.next = &line.entry;
  line.entry.next = &line.head.list;
  line.head.futex_offset = static_cast<long>(offsetof(Line, word)) - static_cast<long>(offsetof(Line, entry));
  line.word.store(static_cast<std::uint32_t>(gettid()) | FUTEX_WAITERS, std::memory_order_seq_cst);
  syscall(SYS_set_robust_list, &line.head, sizeof(line.head));
}

void Lifeline::let_go() {
  auto& line = line_in(own_.memory);
  line.head.list.next = &line.head.list;
  line.word.store(0, std::memory_order_seq_cst);
}

Status Lifeline::watch(std::uint64_t id, pid_t pid, const Fd& line) {
  auto memory = map_segment(line, kPage);
  if (!memory.ok()) return memory.error();
  Watched watched{pid, std::make_shared<Mapping>(std::move(memory).value()), 0};
  watched.seen = line_in(*watched.memory).word.load(std::memory_order_seq_cst);
  if (watched.seen & FUTEX_OWNER_DIED) watched.seen = 0;  // looked at as soon as the thread comes round
  {
    std::lock_guard lock(mutex_);
    watched_[id] = std::move(watched);
  }
  nudge();
  return {};
}

void Lifeline::unwatch(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  watched_.erase(id);
}

void Lifeline::note(std::uint64_t number) { line_in(own_.memory).note.store(number, std::memory_order_seq_cst); }

std::uint64_t Lifeline::noted_by(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  auto at = watched_.find(id);
  return at == watched_.end() ? 0 : line_in(*at->second.memory).note.load(std::memory_order_seq_cst);
}

/// Takes no lock, so that nobody who holds one and gets no core can keep it from counting.
void Lifeline::beat(std::promise<void>& begun) {
  auto& line = line_in(own_.memory);
  line.beating.store(static_cast<std::uint32_t>(gettid()), std::memory_order_seq_cst);
  begun.set_value();
  while (!stopping_) {
    line.beats.fetch_add(1, std::memory_order_relaxed);
    FutexWord word{&bell_, bell_.load(std::memory_order_seq_cst)};
    if (!stopping_) futex_wait_any({&word, 1}, Pulse::kBeat);
  }
  line.beating.store(0, std::memory_order_seq_cst);
}

/// Those of whom it is to be told. To be called once a beat.
std::vector<std::uint64_t> Lifeline::standing_still() {
  std::vector<std::uint64_t> ids;
  std::lock_guard lock(mutex_);
  for (auto& [id, watched] : watched_) {
    const auto& line = line_in(*watched.memory);
    auto thread = static_cast<pid_t>(line.beating.load(std::memory_order_seq_cst));
    if (watched.told || thread == 0) continue;
    auto ask = [pid = watched.pid, thread] { return task_state(pid, thread); };
    bool still = watched.pulse.stands_still(line.beats.load(std::memory_order_relaxed), ask);
    if (!still)
      watched.quiet_looks = 0;
    else if (watched.quiet_looks-- <= 0)
      watched.quiet_looks = kQuietLooks, ids.push_back(id);
  }
  return ids;
}

void Lifeline::run() {
  SteadyClock clock;
  auto next_look = clock.now() + Pulse::kBeat;
  while (!stopping_) {
    std::vector<FutexWord> words{{&bell_, bell_.load(std::memory_order_seq_cst)}};
    std::vector<std::shared_ptr<Mapping>> keep;  // of those words
    std::vector<std::uint64_t> dead;
    auto now = clock.now();
    if (now >= next_look) {
      next_look = now + Pulse::kBeat;
      for (auto id : standing_still())
        if (events_.on_standstill) events_.on_standstill(id);
    }
    Nanos limit = next_look - now;
    {
      std::lock_guard lock(mutex_);
      for (auto& [id, watched] : watched_) {
        if (watched.told) continue;
        const auto& word = line_in(*watched.memory).word;
        auto value = word.load(std::memory_order_seq_cst);
        if (value == watched.seen) {
          words.push_back({&word, value});
          keep.push_back(watched.memory);
        } else if (value & FUTEX_OWNER_DIED) {
          if (watched.looks == 0) futex_wake(&word);  // the kernel wakes one
          if ((watched.told = is_exiting(watched.pid))) dead.push_back(id);
          limit = std::min<Nanos>(limit, ++watched.looks < kEagerLooks ? kEagerly : kPatiently);
        }  // else it was let go: there is nothing more to see
      }
    }
    for (auto id : dead) events_.on_death(id);
    if (dead.empty() && !stopping_) futex_wait_any(words, limit);
  }
}

}  // namespace pliant::net
