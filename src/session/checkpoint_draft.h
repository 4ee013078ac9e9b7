// How a checkpoint's folder comes into being and goes, so that a kill at any instant leaves whole ones only.
//
// A draft is DIR/.tmp-<16 hex digits>. Its writer holds a lock (flock) on that folder, which the kernel releases with
// the process: a draft that can be locked has no writer any more and may be removed. Folders that shall go are
// renamed to such a name first. Where the file system has no such locks, drafts are left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/own_files.h"
#include "base/result.h"
#include "session/checkpoint.h"
#include "session/state_file.h"

namespace pliant::session {

inline constexpr char kRecordFile[] = "/checkpoint.json";
inline constexpr char kStateFile[] = "/state.safetensors";

/// A locked folder of one writer. Movable; removed when it is destroyed without having been published.
class Draft {
 public:
  /// Makes `dir` too, if need be. Its files get `mode`. Code::refused if others can write to `dir`.
  static Result<Draft> create(const std::string& dir, mode_t mode = 0600);
  Draft(Draft&& other) noexcept;
  Draft& operator=(Draft&&) = delete;
  ~Draft();

  /// A new file in it, on the disk when this returns. `name` begins with a slash.
  Status write(const std::string& name, std::span<const std::byte> bytes) const;
  /// Gives it the name of its step and returns that folder. One that has the name already is replaced, in one instant
  /// where the file system can exchange names (all usual local ones).
  Result<std::string> publish(std::uint64_t step);

 private:
  Draft(std::string dir, std::string path, OwnDirectory folder, mode_t mode)
      : dir_(std::move(dir)), path_(std::move(path)), folder_(std::move(folder)), mode_(mode) {}

  std::string dir_;
  std::string path_;     // empty: moved from, or published
  OwnDirectory folder_;  // locked
  mode_t mode_;
};

/// A draft with both files in it.
Result<Draft> write_draft(const std::string& dir, const Position& position, const StateImage& image,
                          mode_t mode = 0600);

/// DIR/step-000000001200
std::string folder_of_step(const std::string& dir, std::uint64_t step);
/// The steps that have a folder in `dir`, newest first. None if `dir` is not there.
std::vector<std::uint64_t> steps_in(const std::string& dir);
/// Removes a step's folder; a kill meanwhile leaves a draft without a writer.
void remove_step(const std::string& dir, std::uint64_t step);
/// Removes drafts whose writers are gone.
void remove_orphans(const std::string& dir);

}  // namespace pliant::session
