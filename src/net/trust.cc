#include "net/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/system.h"

namespace pliant::net {
namespace {

constexpr std::size_t kDigits = 64;

std::optional<std::uint8_t> value_of(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<std::uint8_t>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<std::uint8_t>(digit - 'a' + 10);
  if (digit >= 'A' && digit <= 'F') return static_cast<std::uint8_t>(digit - 'A' + 10);
  return std::nullopt;
}

std::optional<std::array<std::uint8_t, kDigits / 2>> parse(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.size() != kDigits) return std::nullopt;
  std::array<std::uint8_t, kDigits / 2> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto high = value_of(text[2 * i]);
    auto low = value_of(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    bytes[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return bytes;
}

/// To the end, but to `most` bytes and one more at most.
Result<std::string> read_some(int fd, std::size_t most) {
  std::string text(most + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    auto got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("reading the secret");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

/// The descriptor is looked at, not the path: what was checked is what is read.
Status check_private(int fd, const std::string& path) {
  struct stat about {};
  if (fstat(fd, &about) != 0) return errno_error(path);
  if (!S_ISREG(about.st_mode))
    return Error{Code::refused, path + " is no regular file, so it is no place for a secret"};
  if (about.st_uid != geteuid())
    return Error{Code::refused, fmt::format("{} belongs to another user ({}), so it is no secret", path, about.st_uid)};
  if (about.st_mode & (S_IRWXG | S_IRWXO))
    return Error{Code::refused, fmt::format("{} is open to other users, so it is no secret: chmod 600 {}", path, path)};
  return {};
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    auto put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error("writing the secret");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

}  // namespace

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Result<std::string> read_private(const std::string& path, std::size_t most) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe in its place must not make us wait
  if (!file) return errno_error(path);
  PLIANT_TRY(check_private(file.get(), path));
  auto text = read_some(file.get(), most);
  if (text.ok() && text.value().size() > most)
    return Error{Code::invalid, fmt::format("{} has more than {} bytes", path, most)};
  return text;
}

Secret::Secret(Bytes bytes) {
  auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw Failure(Code::io, errno_error("memory for a secret").message);
  (void)madvise(page, size, MADV_DONTDUMP);
  (void)mlock(page, size);  // a limit on locked memory is no reason to fail
  bytes_ = std::shared_ptr<const Bytes>(new (page) Bytes(bytes), [page, size](const Bytes*) {
    OPENSSL_cleanse(page, sizeof(Bytes));
    munmap(page, size);
  });
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

Secret Secret::random() {
  Bytes bytes{};
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    auto number = random_u64();
    std::memcpy(bytes.data() + at, &number, sizeof(number));
  }
  return Secret(bytes);
}

Result<Secret> Secret::from_file(const std::string& path) {
  auto text = read_private(path, kDigits + 1);
  if (!text.ok()) return text.error();
  auto secret = from_text(text.value());
  if (!secret.ok()) return Error{secret.error().code, path + ": " + secret.error().message};
  return secret;
}

Result<Secret> Secret::from_descriptor(int fd) {
  auto text = read_some(fd, kDigits + 1);
  return text.ok() ? from_text(text.value()) : text.error();
}

Result<Secret> Secret::from_text(std::string_view text) {
  auto bytes = parse(text);
  if (!bytes) return Error{Code::invalid, fmt::format("not a secret of {} hexadecimal digits", kDigits)};
  return Secret(*bytes);
}

Status Secret::save(const std::string& path) const {
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file) return errno_error("cannot make " + path);
  auto written = write_all(file.get(), text() + "\n");
  if (!written.ok()) unlink(path.c_str());  // half a secret is none
  return written;
}

std::string Secret::text() const {
  std::string text;
  for (auto byte : *bytes_) text += fmt::format("{:02x}", byte);
  return text;
}

Mac Secret::sign(std::span<const std::span<const std::uint8_t>> parts) const {
  std::vector<std::uint8_t> text;
  for (auto part : parts) {
    auto size = static_cast<std::uint64_t>(part.size());
    auto at = text.size();
    text.resize(at + sizeof(size));
    std::memcpy(text.data() + at, &size, sizeof(size));
    text.insert(text.end(), part.begin(), part.end());
  }
  Mac mac{};
  unsigned int length = 0;
  const auto* done = HMAC(EVP_sha256(), bytes_->data(), static_cast<int>(bytes_->size()), text.data(), text.size(),
                          mac.data(), &length);
  PLIANT_ASSERT(done && length == mac.size());
  return mac;
}

}  // namespace pliant::net
