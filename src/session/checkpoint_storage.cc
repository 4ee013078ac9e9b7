#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/fd.h"
#include "base/own_files.h"
#include "session/checkpoint.h"
#include "session/checkpoint_draft.h"

namespace pliant::session {
namespace {

class Disk final : public CheckpointStorage {
 public:
  std::unique_ptr<CheckpointSink> writer(const std::string& dir, int keep, mode_t mode) override {
    return std::make_unique<CheckpointWriter>(dir, keep, mode);
  }
  Result<Checkpoint> read(const std::string& dir, std::uint64_t step) override {
    auto newest = newest_checkpoint(dir);
    if (newest.ok() && newest.value().position.step >= step) return newest;
    return read_checkpoint(folder_of_step(dir, step));
  }
  Result<Checkpoint> newest(const std::string& dir) override { return newest_checkpoint(dir); }
  /// Kept in dir/lineage.
  Result<std::uint64_t> begin_lineage(const std::string& dir, std::uint64_t after) override {
    auto path = dir + "/lineage";
    auto folder = OwnDirectory::open(dir, Links::own);
    if (!folder.ok()) return folder.error();
    auto opened = folder.value().open_file("lineage", O_RDWR | O_CREAT);
    if (!opened.ok()) return opened.error();
    const auto& file = opened.value();
    if (flock(file.get(), LOCK_EX) != 0) return errno_error(path);  // two jobs may begin here at once
    char text[32] = {};
    if (pread(file.get(), text, sizeof(text) - 1, 0) < 0) return errno_error(path);
    auto lineage = std::max<std::uint64_t>(after, std::strtoull(text, nullptr, 10)) + 1;
    auto line = fmt::format("{}\n", lineage);
    auto written = pwrite(file.get(), line.data(), line.size(), 0);
    if (written != static_cast<ssize_t>(line.size()) || fsync(file.get()) != 0) return errno_error(path);
    return lineage;
  }
};

}  // namespace

CheckpointStorage& checkpoints_on_disk() {
  static Disk disk;  // has no state
  return disk;
}

}  // namespace pliant::session
