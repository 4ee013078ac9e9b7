#include "session/socket_transport.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "membership/signed_store.h"
#include "session/coordinator_link.h"
#include "session/worker_note.h"

namespace pliant::session {
namespace {

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(SocketOptions options) : options_(std::move(options)) {}

  void start(TransportEvents events) override {
    std::optional<net::Credentials> credentials;
    std::optional<membership::ValueSigner> signer;  // a job on one host has no secret, and a store of its own
    if (options_.hosts) {
      signer = {options_.hosts->secret, options_.job};
      credentials = {options_.hosts->secret,
                     {net::Purpose::coordinator, options_.job, options_.self.id, UINT64_MAX, 0, 0},
                     options_.hosts->address};
    }
    auto heard = once_made(events);
    // Who is left behind must be able to come back, and somebody must decide who is.
    heard.loses_standing_still = !options_.coordinator.empty() && (options_.hosts || !options_.store.empty());
    {
      std::lock_guard lock(making_);
      mesh_ = std::make_unique<collective::Mesh>(options_.job, options_.self, std::move(options_.listener),
                                                 std::move(heard), std::move(options_.hosts), options_.watch);
    }
    if (!options_.store.empty()) open_store(options_.store, signer);
    if (options_.coordinator.empty()) return;
    mesh_->run([&] {
      LinkEvents line{events.introduce, events.on_coordinator, events.on_silence};
      link_ = std::make_unique<CoordinatorLink>(mesh_->loop(), options_.coordinator, std::move(line), credentials);
    });
  }

  ~SocketTransport() override { stop(); }

  void stop() override {
    if (!mesh_) return;
    mesh_->stop();  // before anything that runs on its thread goes
    link_.reset();
    store_.reset();
  }

  void expect(std::vector<wire::Member> members) override {
    mesh_->post([this, members = std::move(members)] { mesh_->expect(members); });
  }
  void send(std::vector<std::uint64_t> ids, wire::Message message) override {
    mesh_->send(std::move(ids), std::move(message));
  }
  bool reaches(const std::vector<wire::Member>& members) const override { return mesh_->reaches(members); }
  void believe_dead(std::uint64_t id, wire::LastView view) override { mesh_->believe_dead(id, view); }
  void leave_behind(std::uint64_t id, const std::string& what) override { mesh_->leave_behind(id, what); }
  void on_settled(std::set<std::uint64_t> at_hand) override { mesh_->on_settled(std::move(at_hand)); }
  void note_view(wire::LastView view) override {
    view_ = view.epoch;
    mesh_->note_view(view);
    warn_if_failed(note_.set_view(view));
  }
  Result<std::unique_ptr<collective::Group>> form(collective::Team team) override {
    return collective::Group::form(std::move(team), mesh_.get());
  }

  void tell(wire::Message message) override {
    mesh_->post([this, message = std::move(message)] {
      if (link_) link_->send(message);
    });
  }
  void report(wire::Progress progress) override {
    if (link_) link_->report(std::move(progress));
  }

  void report_outcome(Outcome outcome, std::uint64_t step) override {
    warn_if_failed(note_.set_outcome(outcome));
    tell(wire::LoopEnded{static_cast<std::uint8_t>(outcome), step});
  }

  void say_goodbye(Outcome outcome, std::uint64_t step) override {
    mesh_->say_goodbye(view_);
    if (!options_.coordinator.empty()) (void)note_.close(outcome);  // in a destructor there is nobody to complain to
    mesh_->run([this, outcome, step] {
      if (!link_) return;
      link_->flush();
      link_->send(wire::Bye{static_cast<std::uint8_t>(outcome), step});
    });
  }

  void hang_up() override {
    mesh_->hang_up();
    mesh_->run([this] { link_.reset(); });
  }

  void decide(const std::string& key, const std::string& text, Answered answered) override {
    mesh_->post([this, key, text, answered = std::move(answered)] {
      if (store_)
        store_->replace(key, 0, text, answered);
      else
        answered(Error{Code::peer_lost, "the store is not opened yet"});
    });
  }

 private:
  /// The mesh's thread runs before the mesh is in its place: what it hears first waits for that.
  collective::MeshEvents once_made(const TransportEvents& events) {
    collective::MeshEvents waiting;
    waiting.on_letter = [this, tell = events.on_letter](std::uint64_t from, const wire::Message& message) {
      wait_until_made();
      tell(from, message);
    };
    waiting.on_lost = [this, tell = events.on_lost](const collective::PeerLoss& loss) {
      wait_until_made();
      tell(loss);
    };
    waiting.on_found = [this, tell = events.on_found](std::uint64_t id) {
      wait_until_made();
      tell(id);
    };
    waiting.on_tick = [this, tell = events.on_tick] {
      wait_until_made();
      tell();
    };
    return waiting;
  }
  static void warn_if_failed(const Status& noted) {
    if (!noted.ok()) log::warn("{}", noted.error().message);
  }
  void wait_until_made() { std::lock_guard lock(making_); }

  void open_store(const std::string& address, const std::optional<membership::ValueSigner>& signer) {
    Status opened;
    mesh_->run([&] {
      auto store = signer ? membership::open_signed_store(mesh_->loop(), address, *signer)
                          : membership::open_store(mesh_->loop(), address);
      if (store.ok())
        store_ = std::move(store).value();
      else
        opened = store.error();
    });
    opened.or_throw();  // here: nobody would catch it there
  }

  SocketOptions options_;
  NoteWriter note_{env("PLIANT_NOTE").value_or("")};
  std::atomic<std::uint64_t> view_{0};  // the epoch of the one that this worker acts in
  std::mutex making_;
  std::unique_ptr<CoordinatorLink> link_;     // used on the mesh's thread; nullptr: there is no coordinator
  std::unique_ptr<membership::Store> store_;  // the same
  std::unique_ptr<collective::Mesh> mesh_;    // last: its thread uses everything above
};

}  // namespace

std::unique_ptr<Transport> open_sockets(SocketOptions options) {
  return std::make_unique<SocketTransport>(std::move(options));
}

}  // namespace pliant::session
