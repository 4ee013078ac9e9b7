#include "net/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "wire/messages.h"

namespace pliant::net {
namespace {

using Bytes = std::span<const std::uint8_t>;

// ---- introductions, as the identity of a PSK; docs/bytes.md shows them byte by byte ----

constexpr std::uint32_t kMagic = 0x48534c50;  // "PLSH"

std::vector<std::uint8_t> encode(const Introduction& who) {
  ByteWriter out;
  out.put(kMagic), out.put(wire::kVersion);
  out.put(static_cast<std::uint8_t>(who.purpose)), out.put(static_cast<std::uint8_t>(who.protection));
  out.put(who.from), out.put(who.to), out.put(who.view), out.put(who.lane);
  out.put_text(who.job);
  return std::move(out).take();
}

Result<Introduction> decode(Bytes identity) {
  ByteReader in(identity);
  auto magic = in.get<std::uint32_t>();
  auto version = in.get<std::uint16_t>();
  if (!in.ok() || magic != kMagic) return Error{Code::protocol, "a TLS client that is none of Pliant's"};
  if (version != wire::kVersion)
    return Error{Code::refused,
                 fmt::format("the other side speaks protocol version {}, this is {}", version, wire::kVersion)};
  Introduction who;
  auto purpose = in.get<std::uint8_t>(), protection = in.get<std::uint8_t>();
  who.purpose = static_cast<Purpose>(purpose);
  who.protection = static_cast<Protection>(protection);
  who.from = in.get<std::uint64_t>();
  who.to = in.get<std::uint64_t>();
  who.view = in.get<std::uint64_t>();
  who.lane = in.get<std::uint32_t>();
  who.job = in.get_text(wire::kMaxName);
  if (!in.finished()) return Error{Code::protocol, "an introduction of another size"};
  if (purpose < 1 || purpose > static_cast<std::uint8_t>(Purpose::request))
    return Error{Code::protocol, fmt::format("unknown purpose {}", purpose)};
  if (protection < 1 || protection > static_cast<std::uint8_t>(Protection::plain))
    return Error{Code::protocol, fmt::format("unknown protection {}", protection)};
  return who;
}

// ---- TLS ----

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using SslPtr = std::unique_ptr<SSL, SslDeleter>;
using SessionPtr = std::unique_ptr<SSL_SESSION, SslDeleter>;

constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherId = {0x13, 0x01};
constexpr unsigned char kContextId = 0;  // OpenSSL wants sessions to have one where peers are verified
constexpr std::string_view kExporter = "EXPORTER pliant records";

// A record of TLS: type, version, length of what follows. The version says nothing and is not protected in a hello, so
// it has to be what OpenSSL writes: then no bit of a handshake can be changed unnoticed.
constexpr std::size_t kTlsHead = 5;
constexpr std::size_t kMostTls = 1024;  // bytes of one record; ours are below 500
constexpr std::array<std::uint8_t, 3> kClientHello = {22, 3, 1}, kServerHello = {22, 3, 3}, kEncrypted = {23, 3, 3};

/// As a session that TLS resumes.
SessionPtr session_with(SSL* ssl, const Mac& key) {
  SessionPtr session(SSL_SESSION_new());
  PLIANT_ASSERT(session);
  int done = SSL_SESSION_set1_master_key(session.get(), key.data(), key.size());
  done &= SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kCipherId.data()));
  done &= SSL_SESSION_set1_id_context(session.get(), &kContextId, sizeof(kContextId));
  done &= SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION);
  PLIANT_ASSERT(done == 1);
  return session;
}

}  // namespace

class Handshake::Impl {
 public:
  Impl(const Secret& secret, std::string job) : secret_(secret), job_(std::move(job)) {}

  void call(Introduction who) {
    identity_ = encode(who);
    who_ = std::move(who);
    state_ = State::answer_wanted;
    begin(true);
    PLIANT_ASSERT(proceed().ok() && !output_.empty());
  }
  void answer() { state_ = State::hello_wanted; }

  Result<std::size_t> feed(Bytes bytes);
  bool done() const { return state_ == State::done; }

  Introduction who_;
  std::vector<std::uint8_t> output_;
  std::optional<ConnectionKeys> keys_;

 private:
  /// What is awaited. The first text of each side begins in the clear, the rest is encrypted.
  enum class State { hello_wanted, answer_wanted, rest_wanted, done, failed };

  Mac key_for(Bytes identity) const {
    constexpr std::string_view kLabel = "pliant connection";
    const Bytes parts[] = {{reinterpret_cast<const std::uint8_t*>(kLabel.data()), kLabel.size()}, identity};
    return secret_.sign(parts);
  }
  static SSL_CTX* context();
  static Impl& of(SSL* ssl) { return *static_cast<Impl*>(SSL_get_app_data(ssl)); }
  static int give_session(SSL* ssl, const EVP_MD* md, const unsigned char** identity, std::size_t* length,
                          SSL_SESSION** session);
  static int find_session(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session);
  SessionPtr session_for(SSL* ssl, Bytes identity);
  Status check_head() const;
  void begin(bool calls);
  Status take_record();
  Status proceed();
  void conclude();

  const Secret secret_;
  const std::string job_;
  State state_ = State::failed;
  std::vector<std::uint8_t> identity_;
  SslPtr ssl_;
  BIO* in_ = nullptr;  // the connection's, and so is the next
  BIO* out_ = nullptr;
  std::vector<std::uint8_t> incoming_;  // the record that is being received
  std::optional<Error> objection_;      // why there is no session for an identity
};

/// One for all handshakes of this process; nothing in it depends on a job, and nothing changes it.
SSL_CTX* Handshake::Impl::context() {
  static SSL_CTX* const kContext = [] {
    auto* made = SSL_CTX_new(TLS_method());
    PLIANT_ASSERT(made);
    auto done = SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    done &= SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION);
    done &= SSL_CTX_set_ciphersuites(made, kCipher);
    done &= SSL_CTX_set1_groups_list(made, "X25519");
    done &= SSL_CTX_set_num_tickets(made, 0);  // nothing of TLS follows the handshake
    done &= SSL_CTX_set_session_id_context(made, &kContextId, sizeof(kContextId));
    PLIANT_ASSERT(done == 1);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(made, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);  // and no certificate is trusted
    SSL_CTX_set_psk_use_session_callback(made, give_session);
    SSL_CTX_set_psk_find_session_callback(made, find_session);
    return made;
  }();
  return kContext;
}

/// The caller's side of TLS asks for its key.
int Handshake::Impl::give_session(SSL* ssl, const EVP_MD* /*md*/, const unsigned char** identity, std::size_t* length,
                                  SSL_SESSION** session) {
  const auto& impl = of(ssl);
  *identity = impl.identity_.data();
  *length = impl.identity_.size();
  *session = session_with(ssl, impl.key_for(impl.identity_)).release();
  return 1;
}

/// The answerer's side asks for the key of an identity. Without one the handshake fails, as there is no certificate.
int Handshake::Impl::find_session(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  *session = of(ssl).session_for(ssl, {identity, length}).release();
  return 1;
}

SessionPtr Handshake::Impl::session_for(SSL* ssl, Bytes identity) {
  auto who = decode(identity);
  if (!who.ok()) {
    objection_ = who.error();
    return nullptr;
  }
  if (who.value().job != job_) {
    objection_ = Error{Code::refused,
                       fmt::format("the caller belongs to job '{}', this is '{}'", printable(who.value().job), job_)};
    return nullptr;
  }
  who_ = std::move(who).value();
  return session_with(ssl, key_for(identity));
}

void Handshake::Impl::begin(bool calls) {
  ssl_.reset(SSL_new(context()));
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  PLIANT_ASSERT(ssl_ && in_ && out_);
  BIO_set_mem_eof_return(in_, -1);
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_app_data(ssl_.get(), this);
  calls ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
}

Result<std::size_t> Handshake::Impl::feed(Bytes bytes) {
  if (state_ == State::failed) return Error{Code::protocol, "more of a handshake that has failed"};
  std::size_t used = 0;
  auto fail = [&](const Error& error) {
    state_ = State::failed;
    output_.clear();
    ssl_.reset();
    return error;
  };
  while (!done()) {
    auto wanted = kTlsHead;
    if (incoming_.size() >= kTlsHead) wanted += std::size_t{incoming_[3]} << 8 | incoming_[4];
    auto part = bytes.subspan(used, std::min(wanted - incoming_.size(), bytes.size() - used));
    incoming_.insert(incoming_.end(), part.begin(), part.end());
    used += part.size();
    if (auto status = check_head(); !status.ok()) return fail(status.error());
    if (incoming_.size() < wanted) break;
    if (wanted == kTlsHead) continue;  // now its length is known
    if (auto status = take_record(); !status.ok()) return fail(status.error());
  }
  return used;
}

/// As soon as a byte of it tells: connections that are none of ours shall cost as little as possible.
Status Handshake::Impl::check_head() const {
  const auto& expected = state_ == State::hello_wanted    ? kClientHello
                         : state_ == State::answer_wanted ? kServerHello
                                                          : kEncrypted;
  auto size = std::min(incoming_.size(), expected.size());
  if (!std::equal(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(size), expected.begin()))
    return Error{Code::protocol, "this is no Pliant handshake"};
  if (incoming_.size() < kTlsHead) return {};
  auto length = std::size_t{incoming_[3]} << 8 | incoming_[4];
  if (length == 0 || length > kMostTls)
    return Error{Code::protocol, fmt::format("a message of {} bytes in a handshake", length)};
  return {};
}

Status Handshake::Impl::take_record() {
  if (state_ == State::hello_wanted) begin(false);
  auto written = BIO_write(in_, incoming_.data(), static_cast<int>(incoming_.size()));
  PLIANT_ASSERT(written == static_cast<int>(incoming_.size()));
  incoming_.clear();
  state_ = State::rest_wanted;
  return proceed();
}

Status Handshake::Impl::proceed() {
  ERR_clear_error();
  int result = SSL_do_handshake(ssl_.get());
  bool waits = result != 1 && SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  if (result != 1 && !waits) {
    if (objection_) return *objection_;
    return Error{Code::refused, "the other side does not know this job's secret"};
  }
  // With a certificate in the place of the key it would be a handshake with anybody.
  if (result == 1 && SSL_session_reused(ssl_.get()) != 1)
    return Error{Code::refused, "the other side did without this job's secret"};
  char* said = nullptr;
  auto size = BIO_get_mem_data(out_, &said);
  output_.insert(output_.end(), said, said + size);
  (void)BIO_reset(out_);
  if (result == 1) conclude();
  return {};
}

void Handshake::Impl::conclude() {
  constexpr auto kEach = TrafficSecret::kSize;
  std::array<std::uint8_t, 2 * kEach> exported{};
  int done = SSL_export_keying_material(ssl_.get(), exported.data(), exported.size(), kExporter.data(),
                                        kExporter.size(), nullptr, 0, 0);
  PLIANT_ASSERT(done == 1);
  std::span<const std::uint8_t, 2 * kEach> both = exported;
  TrafficSecret callers(both.first<kEach>()), answerers(both.last<kEach>());
  OPENSSL_cleanse(exported.data(), exported.size());
  if (SSL_is_server(ssl_.get()))
    keys_ = ConnectionKeys{std::move(answerers), std::move(callers)};
  else
    keys_ = ConnectionKeys{std::move(callers), std::move(answerers)};
  ssl_.reset();
  state_ = State::done;
}

// ---- the handle ----

Handshake::Handshake(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Handshake::Handshake(Handshake&&) noexcept = default;
Handshake& Handshake::operator=(Handshake&&) noexcept = default;
Handshake::~Handshake() = default;

Handshake Handshake::call(const Secret& secret, Introduction who) {
  PLIANT_ASSERT(who.job.size() <= wire::kMaxName);
  auto impl = std::make_unique<Impl>(secret, who.job);
  impl->call(std::move(who));
  return Handshake(std::move(impl));
}

Handshake Handshake::answer(const Secret& secret, std::string job) {
  auto impl = std::make_unique<Impl>(secret, std::move(job));
  impl->answer();
  return Handshake(std::move(impl));
}

std::vector<std::uint8_t> Handshake::take_output() { return std::exchange(impl_->output_, {}); }

Result<std::size_t> Handshake::feed(std::span<const std::uint8_t> bytes) { return impl_->feed(bytes); }

bool Handshake::done() const { return impl_->done(); }

const Introduction& Handshake::introduction() const {
  PLIANT_ASSERT(done());
  return impl_->who_;
}

ConnectionKeys Handshake::take_keys() {
  PLIANT_ASSERT(done() && impl_->keys_);
  auto keys = std::move(*impl_->keys_);
  impl_->keys_.reset();
  return keys;
}

}  // namespace pliant::net
