#include "collective/group.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>

#include "base/log.h"
#include "collective/engine.h"
#include "net/shared_memory.h"

namespace pliant::collective {

class Group::Impl {
 public:
  Impl(Team team, GroupOptions options, net::OwnSegment control)
      : team_(std::move(team)),
        options_(std::move(options)),
        segment_(std::move(control)),
        peers_(team_.members.size()) {
    auto* control_words = reinterpret_cast<Control*>(segment_.memory.data());
    control_words->magic = kControlMagic;
    control_words->view_hash = team_.view_hash;
    control_words->rank = static_cast<std::uint32_t>(team_.rank);
    control_words->ranks = static_cast<std::uint32_t>(team_.size());
    engine_.emplace(team_, control_words, options_);
  }

  Status connect(Fd listener) {
    if (team_.size() > 1) {
      MeshEvents events;
      events.on_hello = [this](int rank, const Fd& control) { return greet(rank, control); };
      events.on_region = [this](int rank, const wire::RegionNotice& notice, std::vector<Fd> fds) {
        arrive(rank, notice, std::move(fds));
      };
      events.on_lost = [this](int rank, bool orderly, const std::string& how) {
        if (formed_) lose(rank, orderly, how);
      };
      mesh_.emplace(team_, std::move(listener), segment_.fd.get(), std::move(events));
      PLIANT_TRY(mesh_->wait_formed(options_.form_limit));
    }
    engine_->start();
    formed_ = true;
    return {};
  }

  ~Impl() { mesh_.reset(); }  // first: its thread calls into everything else

  Result<std::shared_ptr<Region>> create_region(const std::string& name, std::size_t bytes, int results) {
    if (name.empty() || name.size() > kMaxChannelName)
      return Error{Code::invalid, fmt::format("a region needs a name of 1 to {} characters", kMaxChannelName)};
    auto created = Region::create(name, bytes, team_.size(), team_.rank, results);
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
    if (mesh_) mesh_->send_to_all(region->notice(), region->descriptors());
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
      if (auto added = region.add_peer(rank, notice, fds); !added.ok()) {
        engine_->fence(added.error());
        return;
      }
    }
    if (region.ready()) engine_->nudge();
  }

  void lose(int rank, bool orderly, const std::string& how) {
    if (orderly) return engine_->depart(rank);
    auto why = fmt::format("rank {} (pid {}) died: {}", rank, team_.members[rank].pid, how);
    if (engine_->fence({Code::peer_lost, why}) && options_.on_lost) options_.on_lost(rank, {Code::peer_lost, why});
  }

  const Team team_;
  const GroupOptions options_;
  net::OwnSegment segment_;
  std::vector<net::Mapping> peers_;  // control segments by rank; written before the engine starts
  std::optional<Engine> engine_;
  std::atomic<bool> formed_{false};

  std::mutex mutex_;
  std::set<std::string> names_;                           // guarded by mutex_
  std::map<std::string, std::weak_ptr<Region>> regions_;  // guarded by mutex_
  std::map<std::string, std::vector<Parked>> parked_;     // guarded by mutex_; regions not created here yet
  std::mutex add_mutex_;                                  // one add_peer at a time

  std::optional<Mesh> mesh_;
};

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() = default;

Result<std::unique_ptr<Group>> Group::form(Team team, Fd listener, GroupOptions options) {
  auto control = net::create_segment("control", sizeof(Control), net::Backing::sparse);
  if (!control.ok()) return control.error();
  auto impl = std::make_unique<Impl>(std::move(team), std::move(options), std::move(control).value());
  PLIANT_TRY(impl->connect(std::move(listener)));
  return std::unique_ptr<Group>(new Group(std::move(impl)));
}

int Group::rank() const { return impl_->team().rank; }
int Group::size() const { return impl_->team().size(); }

Result<std::shared_ptr<Region>> Group::create_region(const std::string& name, std::size_t bytes) {
  return impl_->create_region(name, bytes, 2);
}

Result<OperationHandle> Group::submit(const Request& request) { return impl_->submit(request); }
Status Group::wait(const OperationHandle& operation) {
  return impl_->engine().wait(static_cast<const Work&>(*operation));
}
Result<std::vector<std::string>> Group::exchange(std::string_view row) { return impl_->engine().exchange(row); }
void Group::fence(Error why) { impl_->engine().fence(std::move(why)); }
void Group::leave() { impl_->leave(); }

}  // namespace pliant::collective
