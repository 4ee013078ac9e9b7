// Connections between the workers of a job. They carry letters, and on one host segments; their end is the first sign
// of a death. They belong to the job and not to a view: members that stay keep theirs when the view changes.
// One thread per mesh serves them; nothing here is on the step path. The way to other hosts is roads.h.
//
// A neighbour whose connection ended although its process may live is lost without proof. Whoever of the two has the
// higher id connects again until its process has ended; then it is found again, as on_found says. An id whose process
// has ended may come back as another process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "collective/death_watch.h"
#include "collective/link.h"
#include "collective/parked.h"
#include "collective/roads.h"
#include "collective/strangers.h"
#include "net/loop.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::collective {

/// What a view wants to hear. Called on the mesh's thread.
class ViewEvents {
 public:
  virtual ~ViewEvents() = default;
  /// A message that names the view: Entered or RegionNotice.
  virtual void on_message(std::uint64_t from, const wire::Message& message, std::vector<Fd> fds) = 0;
  virtual void on_lost(const PeerLoss& loss) = 0;
};

/// What the owner of a mesh wants to hear. Called on the mesh's thread; any may be empty.
struct MeshEvents {
  /// A letter between members (agreement), or that somebody entered a view.
  std::function<void(std::uint64_t from, const wire::Message& message)> on_letter;
  std::function<void(const PeerLoss& loss)> on_lost;
  /// There is a connection to it, perhaps again.
  std::function<void(std::uint64_t id)> on_found{};
  /// About twenty times a second.
  std::function<void()> on_tick;
  /// A neighbour whose process lives but does not run (stopped, frozen) counts as lost, without proof, until it runs
  /// again. Else it is waited for.
  bool loses_standing_still = false;
};

class Mesh {
 public:
  /// `listener` is the socket at self.address. `watch` makes what proves the end of neighbours; empty: a ProcessWatch.
  Mesh(std::string job, wire::Member self, Fd listener, MeshEvents events = {},
       std::optional<HostsOptions> hosts = std::nullopt, const WatchMaker& watch = {});
  /// Stops the thread. Peers see the connections' end.
  ~Mesh();
  /// Stops the thread; after this nothing is called any more.
  void stop();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// Sees to it that there will be a connection to each of these: made from here to lower ids, awaited from higher
  /// ones. Watches their processes from now on. Does not wait.
  void connect(const std::vector<wire::Member>& members);
  /// The same, on the mesh's thread.
  void expect(const std::vector<wire::Member>& members);
  /// Sends, soon and in order, to those of `ids` that are not lost. What is sent before the connection stands waits for
  /// it.
  void send(std::vector<std::uint64_t> ids, wire::Message message);
  /// The same with descriptors, which are duplicated before the call returns. Code::io if this process has no room for
  /// the duplicates; then nothing is sent.
  Status send(std::vector<std::uint64_t> ids, wire::Message message, const std::vector<int>& fds);
  /// There are connections to all of these (but this worker itself).
  bool reaches(const std::vector<wire::Member>& members) const;
  /// Somebody's kernel says that this worker's process is gone, which was in the view with that epoch. Soon told as a
  /// proven loss; again, if its death is known and only the view is news.
  void believe_dead(std::uint64_t id, wire::LastView view = {});
  /// A worker on another host has said what it must not, which is `what`: see Roads. One on this host, which could do
  /// anything to this process, is only named.
  void leave_behind(std::uint64_t id, std::string what);
  /// This worker has settled in another view. The dead that are not among `at_hand`, and were not the last time, are
  /// forgotten: nobody will ask for them. One that is named once more is watched, and found dead, once more.
  void on_settled(std::set<std::uint64_t> at_hand);
  /// Workers that this one has heard of and not forgotten.
  std::size_t known();
  /// A proof of this worker's death will say that it was in the view with this epoch.
  void note_view(wire::LastView view);
  /// Data's way to other hosts; nullptr in a job of one host.
  Streams* streams() { return roads_ ? &roads_->streams() : nullptr; }
  /// Tells every peer that this worker leaves in good order, having acted last in the view with this epoch, and returns
  /// when that is sent.
  void say_goodbye(std::uint64_t view);
  /// Ends all connections, for good.
  void hang_up();

  /// From now on `events` hears what concerns the view: at once what came before, losses of members included. Nobody
  /// will ask for a view with a smaller number (ViewNotice::epoch) any more.
  void subscribe(std::uint64_t view_hash, ViewEvents* events, std::uint64_t number = 0);
  /// When this returns, nothing of it is called any more.
  void unsubscribe(std::uint64_t view_hash);

  /// Runs `task` on the mesh's thread, soon; the second form waits for it. Not from that thread itself.
  void post(std::function<void()> task) { loop_.post(std::move(task)); }
  void run(const std::function<void()>& task);
  /// For what else shall live on that thread; use it there only.
  net::Loop& loop() { return loop_; }
  /// Connections from strangers that were turned away.
  std::uint64_t refused() const { return strangers_.refused(); }

 private:
  Link& link_of(std::uint64_t id);
  void add(const wire::Member& member);
  void connect_to(Link& link);
  void serve_retries();
  Status take(net::Peer& peer, const wire::PeerHello& hello, const std::vector<Fd>& fds);
  bool may_connect(Link& link, pid_t pid);
  void renew(Link& link);
  void read_peer(std::uint64_t id);
  void wait_for_descriptors(Link& link);
  bool take_in(Link& link, wire::Message message, std::vector<Fd> fds);
  void arrived_from_afar(std::uint64_t id);
  void greeted(Link& link, pid_t pid, const std::vector<Fd>& lifeline);
  void dispatch(std::uint64_t from, Letter letter);
  void post_parcel(std::shared_ptr<const Parcel> parcel, std::vector<std::uint64_t> ids);
  void flush(Link& link);
  void close(Link& link, const std::string& how);
  void disconnect(Link& link);
  void process_ended(std::uint64_t id);
  void stands_still(std::uint64_t id);
  void prove(Link& link, const std::string& how);
  void bury(Link& link);
  void tell(const Link& link);
  void found(Link& link);
  Status send_hello(const Fd& socket);

  const std::string job_;
  const wire::Member self_;
  const MeshEvents events_;
  net::Loop loop_;

  // Used by the loop's thread only.
  SteadyClock clock_;
  Strangers strangers_;
  std::map<std::uint64_t, Link> links_;         // by id
  std::map<std::uint64_t, ViewEvents*> views_;  // by hash
  Parked parked_;                               // for views that are not subscribed to yet

  std::unique_ptr<Roads> roads_;  // nullptr in a job of one host
  std::unique_ptr<DeathWatch> watch_;

  mutable std::mutex mutex_;
  std::set<std::uint64_t> reached_;  // guarded by mutex_; ids

  std::thread thread_;  // last: everything above exists before it runs
};

}  // namespace pliant::collective
