// A store in a directory of this machine, for a job on one host: which view follows when workers are left behind that
// may still live (a process that is stopped is not dead). Every value is a file that is created once, by link(2), so
// that of two who try one wins, whoever is stopped or killed on the way; no lock is held that its holder could keep.
//
// It decides between processes that live: nothing is synced to a disk.
#pragma once

#include <memory>
#include <string>

#include "membership/store.h"

namespace pliant::membership {

class DirectoryStore final : public Store {
 public:
  /// Every file of it begins with this.
  static constexpr const char* kPrefix = "decided.";

  /// In `directory`, which exists, and belongs to this user alone.
  DirectoryStore(net::Loop& loop, std::string directory) : loop_(loop), directory_(std::move(directory)) {}

  void read(const std::string& key, std::function<void(Result<Entry>)> done) override;
  void replace(const std::string& key, std::uint64_t revision, std::string text,
               std::function<void(Result<Attempt>)> done) override;
  void remove_all(const std::string& prefix, std::function<void(Status)> done) override;

 private:
  void later(std::function<void()> answer);
  std::string file_of(const std::string& key, std::uint64_t revision) const;
  Result<Entry> newest(const std::string& key) const;
  Result<bool> create(const std::string& file, const std::string& text) const;
  Result<Attempt> try_to_replace(const std::string& key, std::uint64_t revision, const std::string& text) const;

  net::Loop& loop_;
  const std::string directory_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared: with answers that were not given yet
};

}  // namespace pliant::membership
