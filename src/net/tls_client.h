// TLS towards a server that proves its name with a certificate, for a store outside of the job. (Connections between
// the processes of a job prove who they are by the job's secret: handshake.h.)
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct ssl_st;
struct ssl_ctx_st;

namespace pliant::net {

struct TlsFiles {
  std::string ca{};    ///< certificates that are trusted; empty: those that the system trusts
  std::string cert{};  ///< a certificate (and those that lead to its CA) to show to servers that ask; empty: none
  std::string key{};   ///< its private key; nobody else may be able to read the file
};

/// What is trusted, and what is shown. Immutable once it is made; for any number of streams.
class TlsContext {
 public:
  /// Code::not_found, Code::refused or Code::invalid if one of the files cannot be used; the message names it.
  static Result<std::shared_ptr<const TlsContext>> open(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

/// One connection, as bytes that come and go: it owns no socket. TLS 1.2 or later. Nothing of what is written leaves it
/// before the server has proved its name.
class TlsStream {
 public:
  /// `server`: the name or the address that its certificate must have.
  TlsStream(std::shared_ptr<const TlsContext> context, const std::string& server);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// To be sent, as soon as the server is known to be the right one.
  void write(std::string_view text) { unwritten_ += text; }
  /// Takes in what has come (at first: nothing), and adds to `text` what that says. Code::refused if the server is not
  /// the right one, or does not accept our certificate; Code::protocol if this is not TLS. What is to be sent then (an
  /// alert) is still in outgoing().
  Status advance(std::string_view bytes, std::string& text);
  /// Bytes that are to be sent to the other end; whoever sends them takes them away.
  std::string& outgoing() { return outgoing_; }
  /// The server has proved its name.
  bool shook_hands() const;
  /// All that was written is in what outgoing() had.
  bool all_written() const { return unwritten_.empty(); }
  /// The other end has said that this was all: nothing was cut off.
  bool ended() const { return ended_; }

 private:
  Status shake_hands();
  Status flush();
  Status read(std::string& text);
  Error failure() const;
  void collect();

  const std::shared_ptr<const TlsContext> context_;  // shared: with other streams
  const std::string server_;
  ssl_st* stream_;
  std::string unwritten_, outgoing_;
  bool ended_ = false;
};

}  // namespace pliant::net
