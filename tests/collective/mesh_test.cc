// The connections between workers, and what their thread must never wait for.
#include "collective/mesh.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <mutex>

#include "base/fault.h"
#include "collective/connection_watch.h"
#include "collective/group.h"
#include "collective/team.h"
#include "net/shared_memory.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr auto kGuard = 60s;  // for what must happen

/// Meshes of a team whose ranks are threads of this test.
struct Meshes {
  TeamPlan plan;
  std::vector<std::unique_ptr<Mesh>> all;
  explicit Meshes(int ranks) : plan(ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      all.push_back(std::make_unique<Mesh>("test", plan.members[rank], std::move(plan.listeners[rank])));
  }
  /// `body(group)` on a thread per rank.
  void run(const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
      threads.emplace_back([&, rank] {
        auto group = Group::form(plan.team(rank), all[rank].get(), options).or_throw();
        body(*group);
        group->exchange("").or_throw();
      });
    for (auto& thread : threads) thread.join();
  }
};

struct Intercepted {
  explicit Intercepted(std::function<void(const char*)> handler) { fault::intercept(std::move(handler)); }
  ~Intercepted() { fault::intercept({}); }
};

TEST(Mesh, ItsThreadDoesNotMapNeighboursMemory) {
  Meshes meshes(2);
  std::atomic<int> mapped{0}, answered{0};
  Intercepted at_mapping([&](const char* point) {
    if (std::string_view(point) != "map_region") return;
    ++mapped;
    // Whoever maps can wait for both meshes' threads: so none of them is who maps.
    for (auto& mesh : meshes.all) {
      auto done = std::make_shared<std::promise<void>>();
      mesh->post([done] { done->set_value(); });
      if (done->get_future().wait_for(kGuard) == std::future_status::ready) ++answered;
    }
  });
  meshes.run([](Group& group) {
    auto region = group.create_region("r", 1 << 16).or_throw();
    auto operation = group.submit({.name = "x", .count = 100, .region = region}).or_throw();
    group.wait(operation).or_throw();
  });
  EXPECT_EQ(mapped, 2);
  EXPECT_EQ(answered, 4);
}

// ---- links that end, and come back ----

std::ptrdiff_t descriptors() {
  auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

template <class Condition>
void until(const Condition& condition) {
  auto end = std::chrono::steady_clock::now() + kGuard;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(condition());
}

/// What a mesh has told its owner.
struct News {
  std::mutex mutex;
  std::vector<PeerLoss> lost;        // guarded by mutex
  std::vector<std::uint64_t> found;  // guarded by mutex
  std::vector<std::uint64_t> dead;   // guarded by mutex; ids that letters named
  std::atomic<int> ticks{0};

  MeshEvents events() {
    MeshEvents all;
    all.on_letter = [this](std::uint64_t, const wire::Message& message) {
      std::lock_guard lock(mutex);
      if (const auto* letter = std::get_if<wire::Dead>(&message)) dead.push_back(letter->id);
    };
    all.on_lost = [this](const PeerLoss& loss) {
      std::lock_guard lock(mutex);
      lost.push_back(loss);
    };
    all.on_found = [this](std::uint64_t id) {
      std::lock_guard lock(mutex);
      found.push_back(id);
    };
    all.on_tick = [this] { ++ticks; };
    return all;
  }
  std::size_t losses() {
    std::lock_guard lock(mutex);
    return lost.size();
  }
  std::size_t findings() {
    std::lock_guard lock(mutex);
    return found.size();
  }
  bool heard(std::uint64_t id) {
    std::lock_guard lock(mutex);
    return std::ranges::find(dead, id) != dead.end();
  }
  bool proven_last() {
    std::lock_guard lock(mutex);
    return !lost.empty() && lost.back().proven;
  }
  /// By the last loss that was told.
  wire::LastView last_view() {
    std::lock_guard lock(mutex);
    return lost.empty() ? wire::LastView() : lost.back().view;
  }
};

TEST(Mesh, KeepsNoDescriptorOfNeighboursThatDied) {
  TeamPlan plan(1);
  News news;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  auto before = descriptors();
  for (std::uint64_t id = 1; id <= 20; ++id) {
    auto child = spawn([] { pause(); });
    mesh.connect({{id, child, "@nobody/" + std::to_string(id)}});
    kill(child, SIGKILL);
    ended(child);
    until([&] { return news.losses() == id; });
    EXPECT_TRUE(news.proven_last());
  }
  mesh.run([] {});
  EXPECT_LE(descriptors(), before);
}

TEST(Mesh, ForgetsTheDeadThatNobodyAsksForAnyMore) {
  TeamPlan plan(1);
  News news;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  wire::Member last;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    auto child = spawn([] { pause(); });
    last = {id, child, "@nobody/" + std::to_string(id)};
    mesh.connect({last});
    kill(child, SIGKILL);
    ended(child);
    until([&] { return news.losses() == id; });
    mesh.on_settled({1});  // which is a member all the time, as far as this one knows
    EXPECT_LE(mesh.known(), 3U) << "and whoever died since the view before";
  }
  mesh.on_settled({});
  mesh.on_settled({});
  EXPECT_EQ(mesh.known(), 0U);
  mesh.connect({last});  // an old plan names it: it does not come to life by that
  until([&] { return news.losses() == 21; });
  EXPECT_TRUE(news.proven_last());
  EXPECT_FALSE(mesh.reaches({last}));
}

/// Counts what it hears.
struct Listening final : ViewEvents {
  std::atomic<int> messages{0};
  void on_message(std::uint64_t, const wire::Message&, std::vector<Fd>) override { ++messages; }
  void on_lost(const PeerLoss&) override {}
};

TEST(Mesh, KeepsNoMemoryOfViewsThatAreNeverEntered) {
  TeamPlan plan(2);
  News news, other;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  Mesh sender("test", plan.members[1], std::move(plan.listeners[1]), other.events());
  sender.connect(plan.members);
  mesh.connect(plan.members);
  until([&] { return news.findings() == 1 && other.findings() == 1; });
  Fd memory = net::create_memory("m", 4096, net::Backing::sparse).or_throw();
  auto before = descriptors();
  std::uint64_t sent = 0;
  auto say = [&](std::uint64_t hash, std::uint64_t number, bool enter) {
    if (enter) sender.send({0}, wire::Entered{hash, {1, number, 0, 0, {}}}, {memory.get()}).or_throw();
    sender.send({0}, wire::RegionNotice{hash, "r", 1, 1, 1, 1}, {memory.get(), memory.get()}).or_throw();
    sender.send({0}, wire::Dead{++sent});
    until([&] { return news.heard(sent); });
  };
  for (std::uint64_t number = 1; number <= 40; ++number) say(1000 + number, number, true);
  Listening view;
  mesh.subscribe(1040, &view, 40);
  EXPECT_EQ(view.messages, 2);
  EXPECT_LE(descriptors(), before) << "of views before";
  mesh.unsubscribe(1040);
  say(1040, 40, false);
  say(1007, 7, true);
  EXPECT_LE(descriptors(), before) << "of views that are over";
  say(1041, 41, true);
  EXPECT_EQ(descriptors(), before + 3);
  mesh.subscribe(1041, &view, 41);
  EXPECT_EQ(view.messages, 4);
  mesh.unsubscribe(1041);
}

TEST(Mesh, AnAgentsWordProvesTheDeathOfANeighbourThatNeverCame) {
  TeamPlan plan(3);
  News news;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  mesh.connect({plan.members[1]});  // its number is by now that of a process that lives: this test
  mesh.believe_dead(0);
  mesh.believe_dead(2);  // nobody has heard of that one
  mesh.believe_dead(1);
  until([&] { return news.losses() == 1; });
  EXPECT_TRUE(news.proven_last());
}

TEST(Mesh, ANeighbourThatWasLostWithoutProofIsFoundAgain) {
  TeamPlan plan(2);
  News news;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  mesh.connect(plan.members);
  for (std::size_t round = 1; round < 4; ++round) {  // the process is the same, and lives: this test's
    News other;
    auto again = std::make_unique<Mesh>("test", plan.members[1], Fd(), other.events());
    again->connect(plan.members);
    until([&] { return news.findings() == round && other.findings() == 1; });
    EXPECT_TRUE(mesh.reaches(plan.members));
    mesh.send({1}, wire::Dead{7});
    until([&] { return other.heard(7); });
    again.reset();
    until([&] { return news.losses() == round; });
    EXPECT_FALSE(news.proven_last());
    EXPECT_FALSE(mesh.reaches(plan.members));
  }
}

TEST(Mesh, WhoConnectsKeepsTrying) {
  TeamPlan plan(2);
  News news;
  Mesh mesh("test", plan.members[1], std::move(plan.listeners[1]), news.events());
  mesh.connect(plan.members);
  for (std::size_t round = 1; round < 4; ++round) {
    if (!plan.listeners[0]) plan.listeners[0] = net::listen_at(plan.members[0].address).or_throw();
    News other;
    auto again = std::make_unique<Mesh>("test", plan.members[0], std::move(plan.listeners[0]), other.events());
    until([&] { return news.findings() == round && other.findings() == 1; });
    again.reset();
    until([&] { return news.losses() == round; });
  }
}

TEST(Mesh, AnIdComesBackAsAnotherProcess) {
  TeamPlan plan(2);
  News news;
  std::vector<pid_t> children;
  Fd own = std::move(plan.listeners[0]);
  for (int i = 0; i < 2; ++i)
    children.push_back(spawn([&] {
      own.reset();
      raise(SIGSTOP);
      Mesh mesh("test", plan.members[1], Fd());
      mesh.connect(plan.members);
      pause();
    }));
  Mesh mesh("test", plan.members[0], std::move(own), news.events());
  for (std::size_t i = 0; i < 2; ++i) {
    auto member = plan.members[1];
    member.pid = children[i];
    mesh.connect({member});
    int status = 0;
    waitpid(children[i], &status, WUNTRACED);
    kill(children[i], SIGCONT);
    until([&] { return news.findings() == i + 1; });
    kill(children[i], SIGKILL);
    ended(children[i]);
    until([&] { return news.proven_last() && !mesh.reaches({member}); });
    std::lock_guard lock(news.mutex);
    news.lost.clear();
  }
}

TEST(Mesh, ANeighbourThatDoesNotRunIsLostWithoutProofAndFoundAgain) {
  TeamPlan plan(2);
  News news;
  Fd own = std::move(plan.listeners[0]);
  auto child = spawn([&] {
    own.reset();
    Mesh mesh("test", plan.members[1], Fd());
    mesh.connect(plan.members);
    for (;;) pause();
  });
  auto events = news.events();
  events.loses_standing_still = true;
  Mesh mesh("test", plan.members[0], std::move(own), std::move(events));
  auto member = plan.members[1];
  member.pid = child;
  mesh.connect({member});
  for (std::size_t i = 0; i < 2; ++i) {
    until([&] { return news.findings() == i + 1; });
    kill(child, SIGSTOP);
    until([&] { return !mesh.reaches({member}); });
    EXPECT_FALSE(news.proven_last());
    kill(child, SIGCONT);
  }
  until([&] { return news.findings() == 3; });
  kill(child, SIGKILL);
  until([&] { return news.proven_last(); });
  ended(child);
}

/// A neighbour of `mesh`, which notes `views` one after the other and then stops until it is killed.
pid_t neighbour_in(std::vector<std::uint64_t> views, TeamPlan& plan, Fd& listener) {
  return spawn([&plan, &listener, views = std::move(views)] {
    listener.reset();
    News other;
    Mesh mesh("test", plan.members[1], Fd(), other.events());
    mesh.connect({plan.members[0]});
    until([&] { return other.findings() == 1; });
    for (auto view : views) mesh.note_view({view, view == 9});
    raise(SIGSTOP);
  });
}

TEST(Mesh, AProofOfDeathSaysInWhichViewTheDeadWas) {
  for (bool by_word : {false, true}) {  // of an agent that knows of the death, but not of the view
    TeamPlan plan(2);
    News news;
    Fd own = std::move(plan.listeners[0]);
    auto child = neighbour_in({3, 4, 9}, plan, own);
    Mesh mesh("test", plan.members[0], std::move(own), news.events());
    auto member = plan.members[1];
    member.pid = child;
    mesh.connect({member});
    until([&] { return news.findings() == 1; });
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    kill(child, SIGKILL);
    if (by_word) mesh.believe_dead(1);
    until([&] { return news.proven_last(); });
    EXPECT_EQ(news.last_view(), wire::LastView(9, true));
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }
}

TEST(Mesh, AGoodbyeSaysInWhichViewItsSenderWas) {
  TeamPlan plan(2);
  News news, other;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events(), {}, &ConnectionWatch::make);
  {
    Mesh leaver("test", plan.members[1], std::move(plan.listeners[1]), other.events(), {}, &ConnectionWatch::make);
    mesh.connect(plan.members);
    leaver.connect(plan.members);
    until([&] { return news.findings() == 1 && other.findings() == 1; });
    leaver.say_goodbye(7);
  }
  until([&] { return news.losses() == 1; });
  std::lock_guard lock(news.mutex);
  EXPECT_TRUE(news.lost.at(0).orderly);
  EXPECT_EQ(news.lost[0].view, 7U);
}

TEST(Mesh, TheViewOfTheDeadMayBeKnownLaterThanTheDeath) {
  TeamPlan plan(2);
  News news;
  Mesh mesh("test", plan.members[0], std::move(plan.listeners[0]), news.events());
  auto child = spawn([] {});
  EXPECT_EQ(ended(child), 0);
  auto member = plan.members[1];
  member.pid = child;
  mesh.connect({member});  // never seen alive: there is nothing to read
  until([&] { return news.proven_last(); });
  EXPECT_EQ(news.last_view(), 0U);
  mesh.believe_dead(1, 6);
  until([&] { return news.losses() == 2; });
  EXPECT_EQ(news.last_view(), 6U);
  mesh.believe_dead(1, 5);
  mesh.believe_dead(1, 6);
  mesh.run([] {});
  EXPECT_EQ(news.losses(), 2U) << "nothing new";
}

/// While it lives this process can open nothing more.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    Fd lowest(dup(0));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest.get());
    lowest.reset();
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto seconds_in = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds_in(used.ru_utime) + seconds_in(used.ru_stime);
}

TEST(Mesh, WithoutFreeDescriptorsNobodyIsLostAndTheThreadIsNotBusy) {
  TeamPlan plan(3);
  News news;
  std::array<int, 2> go{};
  ASSERT_EQ(pipe(go.data()), 0);
  Fd own = std::move(plan.listeners[0]);
  auto child = spawn([&] {
    own.reset();
    News other;
    Mesh first("test", plan.members[1], Fd(), other.events());
    first.connect({plan.members[0]});
    until([&] { return other.findings() == 1; });
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) return;
    Fd memory = net::create_memory("m", 4096, net::Backing::sparse).or_throw();
    first.send({0}, wire::Entered{77, {1, 1, 0, 0, {}}}, {memory.get()}).or_throw();
    first.send({0}, wire::Dead{5});
    Mesh second("test", plan.members[2], Fd());  // knocks
    second.connect({plan.members[0]});
    pause();
  });
  Mesh mesh("test", plan.members[0], std::move(own), news.events());
  mesh.connect({plan.members[0]});
  until([&] { return news.findings() == 1; });
  Listening view;
  mesh.subscribe(77, &view, 1);
  {
    NoDescriptors now;
    ASSERT_EQ(write(go[1], "x", 1), 1);
    auto began = std::chrono::steady_clock::now();
    auto cpu = cpu_seconds();
    int ticks = news.ticks;
    until([&] { return news.ticks >= ticks + 20; });  // a second
    auto wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    EXPECT_LT(cpu_seconds() - cpu, wall / 2);
    EXPECT_EQ(news.losses(), 0U);
    EXPECT_EQ(view.messages, 0);
  }
  until([&] { return view.messages == 1 && news.heard(5) && news.findings() == 2; });
  EXPECT_EQ(news.losses(), 0U);
  mesh.unsubscribe(77);
  kill(child, SIGKILL);
  ended(child);
  close(go[0]);
  close(go[1]);
}

TEST(Group, AMemberThatLivesIsAwaitedAsLongAsItTakesAndNamed) {
  Meshes meshes(2);
  GroupOptions options;
  options.stall_notice = 20ms;
  testing::internal::CaptureStderr();
  auto team = meshes.plan.team(0);
  std::atomic<int> asked{0};
  team.has_ended = [&] {  // asked now and then while the view forms
    ++asked;
    return false;
  };
  std::thread first([&] {
    auto group = Group::form(team, meshes.all[0].get(), options).or_throw();
    EXPECT_EQ(group->exchange("here").or_throw()[1], "there");
  });
  while (asked < 10) std::this_thread::sleep_for(1ms);  // the other one evaluates
  auto group = Group::form(meshes.plan.team(1), meshes.all[1].get(), options).or_throw();
  EXPECT_EQ(group->exchange("there").or_throw()[0], "here");
  first.join();
  auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("for rank 1 (worker 1, pid"), std::string::npos) << said;
}

TEST(Group, AViewThatFormsEndsWithTheLossOfAMemberOrTheView) {
  Meshes meshes(3);
  auto team = meshes.plan.team(0);
  std::atomic<int> asked{0};
  team.has_ended = [&] { return ++asked == 5; };
  auto ended = Group::form(team, meshes.all[0].get());
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::peer_lost);

  TeamPlan other(3);
  auto members = meshes.plan.members;
  Team next{"test", other.view_hash, members, 0};
  std::atomic<bool> waits{false};
  next.has_ended = [&] {
    waits = true;
    return false;
  };
  std::thread dies([&] {
    meshes.all[2]->connect(members);
    while (!waits) std::this_thread::sleep_for(1ms);
    meshes.all[2].reset();
  });
  auto lost = Group::form(next, meshes.all[0].get());
  dies.join();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Code::peer_lost);
  EXPECT_NE(lost.error().message.find("worker 2"), std::string::npos) << lost.error().message;
}

}  // namespace
}  // namespace pliant::collective
