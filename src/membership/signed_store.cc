#include "membership/signed_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace pliant::membership {
namespace {

constexpr int kMostAttempts = 4;

}  // namespace

void SignedStore::read(const std::string& key, std::function<void(Result<Entry>)> done) {
  store_->read(key, [this, key, done = std::move(done)](Result<Entry> entry) {
    done(entry.ok() ? Result<Entry>(judge(key, entry.value())) : entry.error());
  });
}

void SignedStore::replace(const std::string& key, std::uint64_t revision, std::string text,
                          std::function<void(Result<Attempt>)> done) {
  attempt({key, revision, std::move(text), std::move(done)}, revision);
}

void SignedStore::remove_all(const std::string& prefix, std::function<void(Status)> done) {
  store_->remove_all(prefix, std::move(done));
}

/// `revision` is the store's, also of a value that does not count.
void SignedStore::attempt(Replacement replacement, std::uint64_t revision) {
  ++replacement.attempts;
  replacement.number = newest_[replacement.key] + 1;
  auto value = sign_value(signer_, replacement.key, replacement.number, replacement.text);
  auto key = replacement.key;
  store_->replace(key, revision, std::move(value),
                  [this, replacement = std::move(replacement)](Result<Attempt> told) mutable {
                    answered(std::move(replacement), std::move(told));
                  });
}

void SignedStore::answered(Replacement replacement, Result<Attempt> told) {
  if (!told.ok()) return replacement.done(told.error());
  const auto& stored = told.value().now;
  if (told.value().won) {
    auto& newest = newest_[replacement.key];
    newest = std::max(newest, replacement.number);
    return replacement.done(Attempt{true, {std::move(replacement.text), stored.revision}});
  }
  auto now = judge(replacement.key, stored);
  if (now.revision || replacement.revision) return replacement.done(Attempt{false, std::move(now)});
  // Nothing that counts is there, as the caller thinks: what is there is replaced.
  if (replacement.attempts < kMostAttempts) return attempt(std::move(replacement), stored.revision);
  replacement.done(Error{Code::peer_lost, fmt::format("somebody else writes to '{}' all the time", replacement.key)});
}

/// As it counts; notes the number of one that does.
Entry SignedStore::judge(const std::string& key, const Entry& entry) {
  if (entry.revision == 0) return {};
  auto opened = open_value(signer_, key, entry.text);
  if (!opened.ok()) {
    name(key, opened.error().code == Code::refused ? Flaw::altered : Flaw::unsigned_value, opened.error().message);
    return {};
  }
  auto& newest = newest_[key];
  if (opened.value().number < newest) {
    auto why = fmt::format("an old one was put back (number {} after number {})", opened.value().number, newest);
    name(key, Flaw::old, why);
    return {};
  }
  newest = opened.value().number;
  return {std::move(opened.value().text), entry.revision};
}

void SignedStore::name(const std::string& key, Flaw flaw, const std::string& why) {
  if (named_.emplace(key, flaw).second)
    log::warn("the store's value of '{}' counts as absent: {}; somebody else writes to the store", key, why);
}

Result<std::unique_ptr<Store>> open_signed_store(net::Loop& loop, const std::string& url, ValueSigner signer) {
  auto store = open_store(loop, url);
  if (!store.ok() || url.starts_with("dir:")) return store;
  return std::unique_ptr<Store>(std::make_unique<SignedStore>(std::move(store).value(), std::move(signer)));
}

}  // namespace pliant::membership
