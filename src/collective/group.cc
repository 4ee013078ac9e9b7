#include "collective/group.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "base/fault.h"
#include "base/log.h"
#include "collective/engine.h"
#include "collective/mapper.h"
#include "net/shared_memory.h"

namespace pliant::collective {
namespace {

constexpr Nanos kBetweenQuestions = std::chrono::milliseconds(20);

class SharedGroup final : public Group, private ViewEvents {
 public:
  SharedGroup(Team team, std::unique_ptr<Mesh> own_mesh, Mesh* mesh, GroupOptions options, net::OwnSegment control)
      : team_(std::move(team)),
        options_(options),
        segment_(std::move(control)),
        peers_(team_.members.size()),
        own_mesh_(std::move(own_mesh)),
        mesh_(team_.size() > 1 ? mesh : nullptr) {
    auto* control_words = reinterpret_cast<Control*>(segment_.memory.data());
    control_words->magic = kControlMagic;
    control_words->view_hash = team_.view_hash;
    control_words->rank = static_cast<std::uint32_t>(team_.rank);
    control_words->ranks = static_cast<std::uint32_t>(team_.size());
    engine_.emplace(team_, control_words, options_, mesh_ ? mesh_->streams() : nullptr);
  }

  ~SharedGroup() override {
    if (mesh_) mesh_->unsubscribe(team_.view_hash);  // first: its thread calls into everything else, the mapper too
  }

  Status enter() {
    if (mesh_) {
      mesh_->connect(team_.members);
      mesh_->subscribe(team_.view_hash, this, team_.view.epoch);
      PLIANT_TRY(mesh_->send(neighbours(), wire::Entered{team_.view_hash, team_.view}, {segment_.fd.get()}));
      mesh_->send(strangers(), wire::Entered{team_.view_hash, team_.view});
      PLIANT_TRY(wait_formed());
    }
    engine_->start();
    return {};
  }

  // ---- on the mesh's thread ----

  void on_message(std::uint64_t from, const wire::Message& message, std::vector<Fd> fds) override {
    int rank = rank_of(from);
    if (rank < 0) return;
    if (const auto* notice = std::get_if<wire::RegionNotice>(&message)) return arrive(rank, *notice, std::move(fds));
    if (fds.size() != (engine_->is_local(rank) ? 1U : 0U)) return;
    auto greeted = fds.empty() ? Status() : greet(rank, fds[0]);
    std::lock_guard lock(mutex_);
    if (!greeted.ok())
      failure_ = greeted;
    else
      present_.insert(rank);
    changed_.notify_all();
  }

  void on_lost(const PeerLoss& loss) override {
    int rank = rank_of(loss.id);
    if (rank < 0) return;
    auto why = fmt::format("rank {} (worker {}, pid {}) {}: {}", rank, loss.id, team_.members[rank].pid,
                           loss.orderly ? "left" : "died", loss.how);
    {
      std::lock_guard lock(mutex_);
      failure_ = Error{Code::peer_lost, why};
      changed_.notify_all();
    }
    if (loss.orderly)
      engine_->depart(rank);
    else
      engine_->fence({Code::peer_lost, why});
  }

  Result<std::shared_ptr<SharedRegion>> make_region(const std::string& name, std::size_t bytes, int results,
                                                    const Region::Input& input = {}) {
    if (name.empty() || name.size() > kMaxChannelName)
      return Error{Code::invalid, fmt::format("a region needs a name of 1 to {} characters", kMaxChannelName)};
    const auto& topology = engine_->topology();
    auto here = static_cast<int>(local_ranks().size());
    auto sharers = here == team_.size() ? here : topology.widest() * topology.host_count();
    auto created = SharedRegion::create(name, bytes, here, topology.place_of[team_.rank], results, input, sharers);
    if (!created.ok()) return created;
    auto region = created.value();
    auto notice = region->notice();
    std::vector<Parked> parked;
    {
      std::lock_guard lock(mutex_);
      notice.generation = ++generations_[name];
      RegionKey key{name, notice.generation};
      std::erase_if(regions_, [](const auto& entry) { return entry.second.expired(); });
      regions_[key] = region;
      if (auto at = parked_.find(key); at != parked_.end()) parked = std::move(parked_.extract(at).mapped());
    }
    if (mesh_) {
      notice.view_hash = team_.view_hash;
      PLIANT_TRY(mesh_->send(neighbours(), std::move(notice), region->descriptors()));
    }
    for (auto& part : parked) map_later(region, std::move(part));
    return region;
  }

  Result<OperationHandle> submit(const Request& request) override {
    auto work = engine_->submit(request, [this](const std::string& name, std::size_t bytes) {
      auto buffer = make_region(name, bytes, 1);
      if (buffer.ok()) buffer.value()->close_descriptors();  // its memory serves no other region
      return buffer;
    });
    if (!work.ok()) return work.error();
    return OperationHandle(std::move(work).value());
  }

  using Group::create_region;
  Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes,
                                                Region::Input input) override {
    auto made = make_region(name, bytes, 2, input);
    if (!made.ok()) return made.error();
    made.value()->count_among(registered_);
    return std::shared_ptr<Region>(std::move(made).value());
  }
  int rank() const override { return team_.rank; }
  int size() const override { return team_.size(); }
  bool is_local(int rank) const override { return engine_->is_local(rank); }
  int place_of(int rank) const override { return engine_->topology().place_of[static_cast<std::size_t>(rank)]; }
  Status wait(const OperationHandle& operation) override { return engine_->wait(static_cast<const Work&>(*operation)); }
  Result<std::vector<std::string>> exchange(std::string_view row) override { return engine_->exchange(row); }
  Status confirm() override { return engine_->confirm(); }
  void fence(Error why) override { engine_->fence(std::move(why)); }
  bool fenced() const override { return engine_->fenced(); }
  bool full() const override { return engine_->full(); }
  bool settle(const OperationHandle& operation) override { return engine_->settle(static_cast<Work&>(*operation)); }
  std::optional<std::vector<std::string>> settle_exchange() override { return engine_->settle_exchange(); }
  std::optional<std::string> published_row(int rank) override { return engine_->published_row(rank); }
  std::optional<double> published_weight(const OperationHandle& operation, int rank) override {
    return engine_->published_weight(static_cast<Work&>(*operation), rank);
  }
  void leave() override {
    if (mesh_) mesh_->say_goodbye(team_.view.epoch);
  }

 private:
  const SharedRegion::Tally registered_ = std::make_shared<std::atomic<std::size_t>>(0);
  using RegionKey = std::pair<std::string, std::uint32_t>;  // its name, and which one of that name
  struct Parked {
    int rank;
    wire::RegionNotice notice;
    std::vector<Fd> fds;
  };

  int rank_of(std::uint64_t id) const {
    for (int rank = 0; rank < team_.size(); ++rank)
      if (team_.members[rank].id == id) return rank;
    return -1;
  }

  std::vector<std::uint64_t> others(bool local) const {
    std::vector<std::uint64_t> ids;
    for (int rank = 0; rank < team_.size(); ++rank)
      if (rank != team_.rank && engine_->is_local(rank) == local) ids.push_back(team_.members[rank].id);
    return ids;
  }
  /// The others of this host, who share memory; and those of other hosts.
  std::vector<std::uint64_t> neighbours() const { return others(true); }
  std::vector<std::uint64_t> strangers() const { return others(false); }
  const std::vector<int>& local_ranks() const {
    const auto& topology = engine_->topology();
    return topology.hosts[topology.host_of[team_.rank]];
  }

  Status wait_formed() {
    std::unique_lock lock(mutex_);
    auto all = static_cast<std::size_t>(team_.size()) - 1;
    auto decided = [&] { return present_.size() == all || !failure_.ok(); };
    SteadyClock clock;
    auto began = clock.now();
    Nanos report_after = options_.stall_notice;
    while (!changed_.wait_for(lock, kBetweenQuestions, decided)) {
      auto waited = clock.now() - began;
      if (waited >= report_after) {
        log::warn("waiting for {:.0f} s for {} to come into the view: it lives, and may be in its program's own code",
                  seconds(waited), awaited());
        report_after = 2 * waited;
      }
      lock.unlock();
      bool ended = team_.has_ended && team_.has_ended();
      lock.lock();
      if (ended) return Error{Code::peer_lost, "others have gone on to another view"};
    }
    return failure_;
  }

  /// Who has not entered yet, for people. REQUIRES: mutex_ is held.
  std::string awaited() const {
    std::vector<std::string> missing;
    for (int rank = 0; rank < team_.size(); ++rank)
      if (rank != team_.rank && !present_.contains(rank))
        missing.push_back(
            fmt::format("rank {} (worker {}, pid {})", rank, team_.members[rank].id, team_.members[rank].pid));
    return fmt::format("{}", fmt::join(missing, ", "));
  }

  Status greet(int rank, const Fd& fd) {
    auto mapped = net::map_segment(fd, sizeof(Control));
    if (!mapped.ok()) return mapped.error();
    const auto* control = reinterpret_cast<const Control*>(mapped.value().data());
    if (control->magic != kControlMagic || control->view_hash != team_.view_hash ||
        static_cast<int>(control->rank) != rank)
      return Error{Code::protocol, "its control segment is of another view"};
    peers_[rank] = std::move(mapped).value();
    engine_->add_peer(rank, control);
    return {};
  }

  void arrive(int rank, const wire::RegionNotice& notice, std::vector<Fd> fds) {
    std::shared_ptr<SharedRegion> region;
    Parked part{rank, notice, std::move(fds)};
    {
      std::lock_guard lock(mutex_);
      RegionKey key{notice.name, notice.generation};
      if (auto at = regions_.find(key); at != regions_.end()) region = at->second.lock();
      if (!region) {  // it is awaited, or dropped here already
        auto made = generations_.find(notice.name);
        bool awaited = made == generations_.end() || notice.generation > made->second;
        if (awaited) parked_[key].push_back(std::move(part));
        return;
      }
    }
    map_later(region, std::move(part));
  }

  void map_later(const std::shared_ptr<SharedRegion>& region, Parked part) {
    auto shared = std::make_shared<Parked>(std::move(part));  // shared: a task is copied
    mapper_.post([this, region, shared] {
      fault::point("map_region");
      auto place = engine_->topology().place_of[shared->rank];
      if (auto added = region->add_peer(place, shared->notice, shared->fds); !added.ok())
        engine_->fence(added.error());
      else if (region->ready())
        engine_->nudge();
    });
  }

  const Team team_;
  const GroupOptions options_;
  net::OwnSegment segment_;
  std::vector<net::Mapping> peers_;  // control segments by rank; written before the engine starts
  std::optional<Engine> engine_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> present_;                                     // guarded by mutex_; peers that have entered
  Status failure_;                                            // guarded by mutex_; why the view cannot form
  std::map<std::string, std::uint32_t> generations_;          // guarded by mutex_; regions made so far, by name
  std::map<RegionKey, std::weak_ptr<SharedRegion>> regions_;  // guarded by mutex_
  std::map<RegionKey, std::vector<Parked>> parked_;           // guarded by mutex_; regions not created here yet

  std::unique_ptr<Mesh> own_mesh_;
  Mesh* const mesh_;
  Mapper mapper_;  // last: its thread calls into everything else
};

Result<std::unique_ptr<Group>> make(Team team, std::unique_ptr<Mesh> own, Mesh* mesh, GroupOptions options) {
  auto control = net::create_segment("control", sizeof(Control), net::Backing::sparse);
  if (!control.ok()) return control.error();
  auto group =
      std::make_unique<SharedGroup>(std::move(team), std::move(own), mesh, options, std::move(control).value());
  PLIANT_TRY(group->enter());
  return std::unique_ptr<Group>(std::move(group));
}

}  // namespace

Result<std::unique_ptr<Group>> Group::form(Team team, Mesh* mesh, GroupOptions options) {
  return make(std::move(team), nullptr, mesh, options);
}

Result<std::unique_ptr<Group>> Group::form(Team team, Fd listener, GroupOptions options) {
  std::unique_ptr<Mesh> mesh;
  if (team.size() > 1) mesh = std::make_unique<Mesh>(team.job, team.members[team.rank], std::move(listener));
  auto* at = mesh.get();
  return make(std::move(team), std::move(mesh), at, options);
}

}  // namespace pliant::collective
