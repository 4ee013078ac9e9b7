// Asks an HTTP server one question: one attempt, one connection, with TLS or without. No redirects, no proxies.
// Threads: everything on the loop's. The callback may destroy the object that calls it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/http_answer.h"
#include "net/loop.h"
#include "net/tcp.h"
#include "net/tls_client.h"

namespace pliant::net {

struct HttpRequest {
  std::string method = "GET";  ///< any but HEAD
  std::string path = "/";      ///< as it goes over the wire: whoever needs %20 writes it
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  ///< e.g. Content-Type; Host and lengths are added
};

/// Whom to ask. With a context the server must prove by its certificate that it is `name`, before it hears the request.
struct HttpServer {
  HttpServer(Endpoint at) : endpoint(std::move(at)) {}  // NOLINT(google-explicit-constructor): without TLS
  HttpServer(Endpoint at, std::string called, std::shared_ptr<const TlsContext> context)
      : endpoint(std::move(at)), name(std::move(called)), tls(std::move(context)) {}

  Endpoint endpoint;
  std::string name{};                       ///< a host's name, or an address
  std::shared_ptr<const TlsContext> tls{};  ///< shared: with other calls; nullptr: in the clear
};

/// `on_end` gets the answer, whatever its status, or why there is none: Code::peer_lost if nobody is there, the
/// connection is cut or `patience` is over; Code::refused if the server is not who it should be, or does not accept our
/// certificate; Code::protocol if the answer is none, or too long; Code::invalid if the request cannot be written. It
/// is not called within the constructor, and not after the destructor.
class HttpCall {
 public:
  HttpCall(Loop& loop, const HttpServer& server, const HttpRequest& request,
           std::function<void(Result<HttpAnswer>)> on_end,
           std::chrono::milliseconds patience = std::chrono::milliseconds(2'000), HttpLimits limits = {});
  ~HttpCall();
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  /// False: the other end cannot have acted on the request, because it never had the whole of it.
  bool sent() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pliant::net
