// The address of a store in an etcd cluster, taken apart and put together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::membership {

/// Files are paths on whichever host opens the store.
struct EtcdAddress {
  struct Server {
    std::string host;  ///< a name or an address
    std::uint16_t port = 2379;
    bool operator==(const Server&) const = default;
  };
  std::vector<Server> servers;
  std::string prefix = "/pliant/";  ///< begins and ends with a slash

  bool tls = false;
  std::string ca{};             ///< a file of certificates that are trusted; empty: those that the system trusts
  std::string cert{}, key{};    ///< files: a client's certificate and its key; both or none
  std::string user{};           ///< empty: none
  std::string password_file{};  ///< of that user; nobody else may be able to read it
  bool operator==(const EtcdAddress&) const = default;
};

/// "etcd://10.0.0.1:2379,10.0.0.2:2379/prefix", or "etcds://", which is TLS and may end with any of
/// "?ca=FILE&cert=FILE&key=FILE&user=NAME&password=FILE", as etcd_url() writes it. store.h says more.
Result<EtcdAddress> parse_etcd_address(const std::string& url);
/// parse_etcd_address() understands it.
std::string etcd_url(const EtcdAddress& address);

}  // namespace pliant::membership
