#include "simulation/twin_store.h"

#include <utility>

namespace pliant::sim {
namespace {

const Error kSilent{Code::peer_lost, "the store does not answer"};

class TwinStore final : public membership::Store {
 public:
  explicit TwinStore(TwinServer& server) : server_(server) {}
  ~TwinStore() override { *alive_ = false; }

  void read(const std::string& key, std::function<void(Result<membership::Entry>)> done) override {
    later([this, key, done = std::move(done)] { done(server_.read(key)); });
  }
  /// The answer may get lost after it has happened.
  void replace(const std::string& key, std::uint64_t revision, std::string text,
               std::function<void(Result<membership::Attempt>)> done) override {
    later([this, key, revision, text = std::move(text), done = std::move(done)] {
      auto attempt = server_.replace(key, revision, text);
      bool lost = attempt.ok() && server_.scheduler().rng().chance(2);
      done(lost ? Result<membership::Attempt>(kSilent) : attempt);
    });
  }
  void remove_all(const std::string& prefix, std::function<void(Status)> done) override {
    later([this, prefix, done = std::move(done)] { done(server_.remove_all(prefix)); });
  }

 private:
  void later(std::function<void()> action) {
    auto delay = server_.scheduler().rng().between(microseconds(300), milliseconds(5));
    server_.scheduler().after(delay, [alive = alive_, action = std::move(action)] {
      if (*alive) action();
    });
  }
  TwinServer& server_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<membership::Store> TwinServer::open() { return std::make_unique<TwinStore>(*this); }

Result<membership::Entry> TwinServer::read(const std::string& key) const {
  if (silent_) return kSilent;
  auto at = entries_.find(key);
  return at == entries_.end() ? membership::Entry{} : at->second;
}

Result<membership::Attempt> TwinServer::replace(const std::string& key, std::uint64_t revision,
                                                const std::string& text) {
  if (silent_) return kSilent;
  auto& entry = entries_[key];
  if (entry.revision != revision) return membership::Attempt{false, entry};
  entry = {text, revision + 1};
  return membership::Attempt{true, entry};
}

Status TwinServer::remove_all(const std::string& prefix) {
  if (silent_) return kSilent;
  std::erase_if(entries_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  return {};
}

}  // namespace pliant::sim
