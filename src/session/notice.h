// Notice that this process shall end: SIGTERM, as schedulers send it. While a Notice lives, the signal is a wish that
// the training loop grants at the end of its step, and not the end of the process.
#pragma once

namespace pliant::session {

/// One at a time per process: signals are the process's. A program that handles SIGTERM itself keeps its handler, and
/// given() stays false.
class Notice {
 public:
  Notice();
  ~Notice();
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;
  bool given() const;

 private:
  bool ours_ = false;
};

}  // namespace pliant::session
