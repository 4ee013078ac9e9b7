// How two processes that meet on a network convince each other that they belong to one job, and agree on keys for what
// they say afterwards: TLS 1.3 with a key that is derived from the job's secret (an external PSK), and with an X25519
// exchange, so that who learns the secret later cannot read what was recorded before. A state machine over bytes; it
// owns no socket.
//
//   caller                                            answerer
//   ClientHello: who calls whom and what for,
//                proof of the secret            ->
//                                               <-    ServerHello, Finished: proof of the secret
//   Finished                                    ->
//
// The PSK is derived from the secret *and* from the caller's introduction, which travels as the PSK's identity: keys of
// two connections between other workers, for another purpose, or of another job have nothing in common. Certificates
// are never accepted, and nothing else can be negotiated: there is one version, one cipher, one group.
//
// TLS ends with the handshake. What follows is protected by records of our own (sealed_records.h) under keys that TLS
// exports: they are opened straight into the memory where data belongs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/sealed_records.h"
#include "net/trust.h"

namespace pliant::net {

/// What a connection is for.
enum class Purpose : std::uint8_t { letters = 1, data = 2, coordinator = 3, request = 4 };

/// Whether what follows the handshake is protected. Only bulk data of a job with `--network trusted` is not.
enum class Protection : std::uint8_t { sealed = 1, plain = 2 };

/// What a caller says of itself, and whom it calls.
struct Introduction {
  Purpose purpose = Purpose::letters;
  std::string job;
  std::uint64_t from = 0, to = 0;  ///< workers' ids; agents and tools say UINT64_MAX
  std::uint64_t view = 0;          ///< hash of the view that the connection is made in; 0: none yet
  std::uint32_t lane = 0;          ///< of several connections between two workers
  Protection protection = Protection::sealed;
  bool operator==(const Introduction&) const = default;
};

class Handshake {
 public:
  static Handshake call(const Secret& secret, Introduction who);
  /// For connections to `job`. Whether the rest of the introduction is welcome is the caller's to judge, once done.
  static Handshake answer(const Secret& secret, std::string job);
  Handshake(Handshake&&) noexcept;
  Handshake& operator=(Handshake&&) noexcept;
  ~Handshake();

  /// What is to be sent next; empty if nothing. Each text is given once.
  std::vector<std::uint8_t> take_output();
  /// Takes in what was received, and returns how many of the bytes belong to the handshake; the rest is what follows
  /// it. Code::refused for a wrong job, version or proof; Code::protocol for what is no handshake. After an error there
  /// is nothing more to say, and whoever sent the bytes is told nothing.
  Result<std::size_t> feed(std::span<const std::uint8_t> bytes);
  /// Both sides are convinced.
  bool done() const;
  /// REQUIRES done(): what the caller said.
  const Introduction& introduction() const;
  /// REQUIRES done(), and that it was not asked before.
  ConnectionKeys take_keys();

 private:
  class Impl;
  explicit Handshake(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace pliant::net
