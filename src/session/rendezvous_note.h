// The note by which the processes of a launched job find rank 0: a file in a directory that all of them see. It says
// where rank 0 answers, and the secret to be let in with, so nobody but its user may read it.
#pragma once

#include <string>

#include "base/result.h"
#include "net/tcp.h"
#include "net/trust.h"

namespace pliant::session {

struct Note {
  net::Endpoint endpoint;
  net::Secret secret;
};

/// Where the note of `job` is. Makes the directory (0700) if it is not there.
Result<std::string> note_path(const std::string& dir, const std::string& job);

/// Code::not_found if there is none yet; Code::refused if it is not private; Code::protocol if it is no note.
Result<Note> read_note(const std::string& path);

/// A note that is there for as long as this lives. It takes the place of one that a crash has left.
class PostedNote {
 public:
  static Result<PostedNote> post(const std::string& path, const Note& note);
  PostedNote(PostedNote&& other) noexcept;
  PostedNote& operator=(PostedNote&&) = delete;
  ~PostedNote() { remove(); }
  void remove();

 private:
  explicit PostedNote(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: removed, or moved from
};

}  // namespace pliant::session
