// Messages on their way to a socket that may be full for now.
#pragma once

#include <deque>

#include "net/line.h"
#include "wire/messages.h"

namespace pliant::cli {

class Outbox {
 public:
  void push(wire::Message message) { waiting_.push_back(std::move(message)); }
  /// Sends what the line takes now. False if nobody will ever read it.
  bool flush(net::Line& line);
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  void clear() { waiting_.clear(); }

 private:
  std::deque<wire::Message> waiting_;
};

}  // namespace pliant::cli
