#include "net/tls_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <utility>

#include "net/trust.h"

namespace pliant::net {
namespace {

constexpr std::size_t kLongestKey = 64 * 1024;

/// What OpenSSL says of the last failure on this thread.
std::string last_words() {
  auto number = ERR_peek_last_error();
  ERR_clear_error();
  const auto* reason = number ? ERR_reason_error_string(number) : nullptr;
  return reason ? reason : "for no reason that OpenSSL names";
}

Error unusable(const std::string& file, const char* what) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0) return errno_error(file);
  return {Code::invalid, fmt::format("{} holds no {}: {}", file, what, last_words())};
}

Status trust(SSL_CTX* context, const std::string& ca) {
  if (ca.empty() && SSL_CTX_set_default_verify_paths(context) != 1)
    return Error{Code::internal, "the system's certificates cannot be read: " + last_words()};
  if (!ca.empty() && SSL_CTX_load_verify_file(context, ca.c_str()) != 1) return unusable(ca, "certificate");
  return {};
}

Status show(SSL_CTX* context, const TlsFiles& files) {
  if (files.cert.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) != 1) return unusable(files.cert, "certificate");
  auto text = read_private(files.key, kLongestKey);
  if (!text.ok()) return text.error();
  auto* bytes = BIO_new_mem_buf(text.value().data(), static_cast<int>(text.value().size()));
  // No password is asked for: nobody may be there to type it.
  auto* key = PEM_read_bio_PrivateKey(
      bytes, nullptr, [](char*, int, int, void*) { return -1; }, nullptr);
  BIO_free(bytes);
  OPENSSL_cleanse(text.value().data(), text.value().size());
  if (!key) return unusable(files.key, "private key without a password");
  bool fits = SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
  EVP_PKEY_free(key);
  if (fits) return {};
  return Error{Code::invalid, fmt::format("{} is not the key of {}: {}", files.key, files.cert, last_words())};
}

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

/// Alerts by which a server says that it does not accept our certificate, or that there is none.
bool is_about_our_certificate(int reason) {
  for (int known : {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
                    SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
                    SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
                    SSL_R_TLSV1_ALERT_ACCESS_DENIED, SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED})
    if (reason == known) return true;
  return false;
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::open(const TlsFiles& files) {
  auto* made = SSL_CTX_new(TLS_client_method());
  PLIANT_ASSERT(made);
  std::shared_ptr<const TlsContext> context(new TlsContext(made));
  PLIANT_ASSERT(SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) == 1);
  SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
  PLIANT_TRY(trust(made, files.ca));
  PLIANT_TRY(show(made, files));
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, const std::string& server)
    : context_(std::move(context)), server_(server), stream_(SSL_new(context_->context_)) {
  PLIANT_ASSERT(stream_);
  SSL_set_bio(stream_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(stream_);
  bool named = false;
  if (is_address(server_)) {
    named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream_), server_.c_str()) == 1;
  } else {
    SSL_set_hostflags(stream_, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    named = SSL_set1_host(stream_, server_.c_str()) == 1 && SSL_set_tlsext_host_name(stream_, server_.c_str()) == 1;
  }
  PLIANT_ASSERT(named);  // without a name any certificate would do
}

TlsStream::~TlsStream() { SSL_free(stream_); }

Status TlsStream::advance(std::string_view bytes, std::string& text) {
  ERR_clear_error();
  if (!bytes.empty())
    PLIANT_ASSERT(BIO_write(SSL_get_rbio(stream_), bytes.data(), static_cast<int>(bytes.size())) ==
                  static_cast<int>(bytes.size()));
  auto advanced = shake_hands();
  if (advanced.ok() && shook_hands()) advanced = flush();
  if (advanced.ok() && shook_hands()) advanced = read(text);
  collect();
  return advanced;
}

bool TlsStream::shook_hands() const { return SSL_is_init_finished(stream_); }

Status TlsStream::shake_hands() {
  if (shook_hands()) return {};
  auto done = SSL_do_handshake(stream_);
  if (done == 1 || SSL_get_error(stream_, done) == SSL_ERROR_WANT_READ) return {};
  return failure();
}

Status TlsStream::flush() {
  if (unwritten_.empty()) return {};
  std::size_t written = 0;
  if (SSL_write_ex(stream_, unwritten_.data(), unwritten_.size(), &written) != 1) return failure();
  PLIANT_ASSERT(written == unwritten_.size());  // memory takes everything
  unwritten_.clear();
  return {};
}

Status TlsStream::read(std::string& text) {
  std::array<char, 16 * 1024> chunk;
  std::size_t size = 0;
  while (SSL_read_ex(stream_, chunk.data(), chunk.size(), &size) == 1) text.append(chunk.data(), size);
  auto why = SSL_get_error(stream_, 0);
  ended_ = why == SSL_ERROR_ZERO_RETURN;
  if (ended_ || why == SSL_ERROR_WANT_READ) return {};
  return failure();
}

/// Why the last call has failed.
Error TlsStream::failure() const {
  auto verdict = SSL_get_verify_result(stream_);
  auto reason = ERR_GET_REASON(ERR_peek_last_error());
  auto words = last_words();
  if (verdict != X509_V_OK)
    return {Code::refused, fmt::format("its certificate does not prove that it is '{}': {}", server_,
                                       X509_verify_cert_error_string(verdict))};
  if (is_about_our_certificate(reason))
    return {Code::refused, "it wants a client's certificate that it trusts: " + words};
  return {Code::protocol, "TLS fails: " + words};
}

void TlsStream::collect() {
  std::array<char, 16 * 1024> chunk;
  for (;;) {
    auto size = BIO_read(SSL_get_wbio(stream_), chunk.data(), static_cast<int>(chunk.size()));
    if (size <= 0) return;
    outgoing_.append(chunk.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace pliant::net
