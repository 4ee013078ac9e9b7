// How two processes that meet on a network convince each other that they belong to one job: a mutual challenge over the
// job's secret. A state machine over bytes; it owns no socket.
//
//   caller                                            answerer
//   Hello: version, purpose, job, from, to,
//          view, lane, a random number          ->
//                                               <-    Challenge: a random number, proof of the secret over all of this
//   Proof: the same over all of that            ->
//
// Each side's number makes the other's proof good for this connection only, so nothing that was overheard can be used
// again. The proofs cover everything that was said, and differ by direction, so that none can be sent back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/trust.h"

namespace pliant::net {

/// What a connection is for.
enum class Purpose : std::uint8_t { letters = 1, data = 2, coordinator = 3, request = 4 };

/// What a caller says of itself, and whom it calls.
struct Introduction {
  Purpose purpose = Purpose::letters;
  std::string job;
  std::uint64_t from = 0, to = 0;  ///< workers' ids; agents and tools say UINT64_MAX
  std::uint64_t view = 0;          ///< hash of the view that the connection is made in; 0: none yet
  std::uint32_t lane = 0;          ///< of several connections between two workers
  bool operator==(const Introduction&) const = default;
};

class Handshake {
 public:
  static Handshake call(const Secret& secret, Introduction who);
  /// For connections to `job`. Whether `from`, `to` and `view` are welcome is the caller's to judge, once done.
  static Handshake answer(const Secret& secret, std::string job);

  /// What is to be sent next; empty if nothing. Each text is given once.
  std::vector<std::uint8_t> take_output();
  /// Takes in what was received, and returns how many of the bytes belong to the handshake; the rest is what follows
  /// it. Code::refused for a wrong job, version or proof; Code::protocol for what is no handshake. After an error there
  /// is nothing more to say.
  Result<std::size_t> feed(std::span<const std::uint8_t> bytes);
  /// Both sides are convinced.
  bool done() const;
  /// REQUIRES done(): what the caller said.
  const Introduction& introduction() const;

 private:
  enum class State { hello_wanted, challenge_wanted, proof_wanted, done, failed };
  Handshake(const Secret& secret, State state, std::string job);
  /// What to do with `incoming_` once it has `wanted_` bytes.
  Status proceed();
  Status check_opening();
  Status take_hello();
  Status take_challenge();
  Status take_proof();
  void expect(State state);

  Secret secret_;
  State state_ = State::failed;
  std::string job_;
  Introduction who_;
  std::vector<std::uint8_t> hello_, challenge_;  ///< as they were sent
  std::vector<std::uint8_t> incoming_;           ///< the message that is being received
  std::size_t wanted_ = 0;                       ///< so many bytes of it, before anything can be said about it
  std::vector<std::uint8_t> output_;
};

}  // namespace pliant::net
