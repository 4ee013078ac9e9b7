#include "collective/group.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "base/log.h"
#include "collective/engine.h"
#include "net/shared_memory.h"

namespace pliant::collective {
namespace {

constexpr Nanos kBetweenQuestions = std::chrono::milliseconds(20);

}  // namespace

class Group::Impl final : public ViewEvents {
 public:
  Impl(Team team, std::unique_ptr<Mesh> own_mesh, Mesh* mesh, GroupOptions options, net::OwnSegment control)
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

  ~Impl() override {
    if (mesh_) mesh_->unsubscribe(team_.view_hash);  // first: its thread calls into everything else
  }

  Status enter() {
    if (mesh_) {
      mesh_->connect(team_.members);
      mesh_->subscribe(team_.view_hash, this);
      mesh_->send(neighbours(), wire::Entered{team_.view_hash, team_.view}, {segment_.fd.get()});
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

  Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes, int results,
                                                Region::Input input = {}) {
    if (name.empty() || name.size() > kMaxChannelName)
      return Error{Code::invalid, fmt::format("a region needs a name of 1 to {} characters", kMaxChannelName)};
    const auto& topology = engine_->topology();
    auto here = static_cast<int>(local_ranks().size());
    auto sharers = here == team_.size() ? here : topology.widest() * topology.host_count();
    auto created = Region::create(name, bytes, here, topology.place_of[team_.rank], results, std::move(input), sharers);
    if (!created.ok()) return created;
    auto region = created.value();
    std::vector<Parked> parked;
    {
      std::lock_guard lock(mutex_);
      if (!names_.insert(name).second) return Error{Code::invalid, fmt::format("region '{}' exists already", name)};
      regions_[name] = region;
      parked = std::move(parked_[name]);
      parked_.erase(name);
    }
    if (mesh_) {
      auto notice = region->notice();
      notice.view_hash = team_.view_hash;
      mesh_->send(neighbours(), std::move(notice), region->descriptors());
    }
    for (auto& part : parked) add_part(*region, part.rank, part.notice, part.fds);
    return region;
  }

  Result<OperationHandle> submit(const Request& request) {
    auto work = engine_->submit(
        request, [this](const std::string& name, std::size_t bytes) { return create_region(name, bytes, 1); });
    if (!work.ok()) return work.error();
    return OperationHandle(std::move(work).value());
  }

  Engine& engine() { return *engine_; }
  const Team& team() const { return team_; }
  void leave() {
    if (mesh_) mesh_->say_goodbye();
  }

 private:
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
    for (Nanos waited{0}; waited < options_.form_limit; waited += kBetweenQuestions) {
      if (changed_.wait_for(lock, kBetweenQuestions, decided)) return failure_;
      lock.unlock();
      bool ended = team_.has_ended && team_.has_ended();
      lock.lock();
      if (ended) return Error{Code::peer_lost, "others have gone on to another view"};
    }
    std::string missing;
    for (int rank = 0; rank < team_.size(); ++rank)
      if (rank != team_.rank && !present_.contains(rank)) missing += fmt::format(" {}", rank);
    return Error{Code::io, fmt::format("no sign within {} ms of ranks{}", options_.form_limit.count(), missing)};
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
    std::shared_ptr<Region> region;
    {
      std::lock_guard lock(mutex_);
      if (auto at = regions_.find(notice.name); at != regions_.end()) region = at->second.lock();
      if (!region) {
        parked_[notice.name].push_back({rank, notice, std::move(fds)});
        return;
      }
    }
    add_part(*region, rank, notice, fds);
  }

  void add_part(Region& region, int rank, const wire::RegionNotice& notice, const std::vector<Fd>& fds) {
    {
      std::lock_guard lock(add_mutex_);
      if (auto added = region.add_peer(engine_->topology().place_of[rank], notice, fds); !added.ok()) {
        engine_->fence(added.error());
        return;
      }
    }
    if (region.ready()) engine_->nudge();
  }

  const Team team_;
  const GroupOptions options_;
  net::OwnSegment segment_;
  std::vector<net::Mapping> peers_;  // control segments by rank; written before the engine starts
  std::optional<Engine> engine_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> present_;                                 // guarded by mutex_; peers that have entered
  Status failure_;                                        // guarded by mutex_; why the view cannot form
  std::set<std::string> names_;                           // guarded by mutex_
  std::map<std::string, std::weak_ptr<Region>> regions_;  // guarded by mutex_
  std::map<std::string, std::vector<Parked>> parked_;     // guarded by mutex_; regions not created here yet
  std::mutex add_mutex_;                                  // one add_peer at a time

  std::unique_ptr<Mesh> own_mesh_;
  Mesh* const mesh_;
};

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() = default;

Result<std::unique_ptr<Group>> Group::make(Team team, std::unique_ptr<Mesh> own, Mesh* mesh, GroupOptions options) {
  auto control = net::create_segment("control", sizeof(Control), net::Backing::sparse);
  if (!control.ok()) return control.error();
  auto impl = std::make_unique<Impl>(std::move(team), std::move(own), mesh, options, std::move(control).value());
  PLIANT_TRY(impl->enter());
  return std::unique_ptr<Group>(new Group(std::move(impl)));
}

Result<std::unique_ptr<Group>> Group::form(Team team, Mesh* mesh, GroupOptions options) {
  return make(std::move(team), nullptr, mesh, options);
}

Result<std::unique_ptr<Group>> Group::form(Team team, Fd listener, GroupOptions options) {
  std::unique_ptr<Mesh> mesh;
  if (team.size() > 1) mesh = std::make_unique<Mesh>(team.job, team.members[team.rank], std::move(listener));
  auto* at = mesh.get();
  return make(std::move(team), std::move(mesh), at, options);
}

int Group::rank() const { return impl_->team().rank; }
int Group::size() const { return impl_->team().size(); }
bool Group::is_local(int rank) const { return impl_->engine().is_local(rank); }
int Group::place_of(int rank) const { return impl_->engine().topology().place_of[static_cast<std::size_t>(rank)]; }

Result<std::shared_ptr<Region>> Group::create_region(const std::string& name, std::size_t bytes, Region::Input input) {
  return impl_->create_region(name, bytes, 2, std::move(input));
}

Result<OperationHandle> Group::submit(const Request& request) { return impl_->submit(request); }
Status Group::wait(const OperationHandle& operation) {
  return impl_->engine().wait(static_cast<const Work&>(*operation));
}
Result<std::vector<std::string>> Group::exchange(std::string_view row) { return impl_->engine().exchange(row); }
Status Group::confirm() { return impl_->engine().confirm(); }
void Group::fence(Error why) { impl_->engine().fence(std::move(why)); }
bool Group::fenced() const { return impl_->engine().fenced(); }
bool Group::settle(const OperationHandle& operation) { return impl_->engine().settle(static_cast<Work&>(*operation)); }
std::optional<std::vector<std::string>> Group::settle_exchange() { return impl_->engine().settle_exchange(); }
std::optional<std::string> Group::published_row(int rank) { return impl_->engine().published_row(rank); }
std::optional<double> Group::published_weight(const OperationHandle& operation, int rank) {
  return impl_->engine().published_weight(static_cast<Work&>(*operation), rank);
}
void Group::leave() { impl_->leave(); }

}  // namespace pliant::collective
