// Notice that this process shall end: SIGTERM, as schedulers send it. While a SignalNotice lives, the signal is a wish
// that the training loop grants at the end of its step, and not the end of the process.
#pragma once

namespace pliant::session {

class Notice {
 public:
  virtual ~Notice() = default;
  virtual bool given() const = 0;
};

/// One at a time per process: signals are the process's. A program that handles SIGTERM itself keeps its handler, and
/// given() stays false.
class SignalNotice final : public Notice {
 public:
  SignalNotice();
  ~SignalNotice() override;
  SignalNotice(const SignalNotice&) = delete;
  SignalNotice& operator=(const SignalNotice&) = delete;
  bool given() const override;

 private:
  bool ours_ = false;
};

}  // namespace pliant::session
