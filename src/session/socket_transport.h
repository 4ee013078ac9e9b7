// A worker's connections in production: one thread serves all of them.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "collective/roads.h"
#include "session/transport.h"

namespace pliant::session {

struct SocketOptions {
  std::string job;
  wire::Member self;
  Fd listener;                                      ///< at self.address
  std::string coordinator{};                        ///< its address; empty: there is none
  std::optional<collective::HostsOptions> hosts{};  ///< of a job on several
  std::string store{};                              ///< the address of one outside of the job; empty: there is none
  collective::WatchMaker watch{};                   ///< what proves neighbours' deaths; empty: the kernel
};

/// start() throws Failure if the store's address makes no sense.
std::unique_ptr<Transport> open_sockets(SocketOptions options);

}  // namespace pliant::session
