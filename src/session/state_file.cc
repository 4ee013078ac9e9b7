#include "session/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/hash.h"

namespace pliant::session {
namespace {

using Tensors = std::map<std::string, Checkpoint::Tensor>;

constexpr std::size_t kLargestRead = std::size_t{1} << 30;  // the kernel gives at most 2 GiB at once

/// A file that is read from its beginning to its end, and whose every error names it.
class InFile {
 public:
  static Result<InFile> open(const std::string& path) {
    // Without O_NONBLOCK, a pipe in the place of the file would wait for its other end.
    InFile file{path, Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
    if (!file.fd_) return errno_error(path);
    struct stat found {};
    if (fstat(file.fd_.get(), &found) != 0) return errno_error(path);
    if (!S_ISREG(found.st_mode)) return file.named(malformed("not a file"));
    file.size_ = static_cast<std::uint64_t>(found.st_size);
    return file;
  }

  std::uint64_t size() const { return size_; }
  Error named(const Error& error) const { return {error.code, fmt::format("{}: {}", path_, error.message)}; }

  /// Fills `room`, or fails.
  Status read(void* room, std::size_t size) {
    auto* at = static_cast<char*>(room);
    while (size > 0) {
      auto got = ::read(fd_.get(), at, std::min(size, kLargestRead));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno_error(path_);
      if (got == 0) return named(malformed("ended while it was read"));
      at += got;
      size -= static_cast<std::size_t>(got);
    }
    return {};
  }

 private:
  InFile(std::string path, Fd fd, std::uint64_t size) : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  std::string path_;
  Fd fd_;
  std::uint64_t size_;
};

/// A file with holes can claim any size without having it; none that is larger than the machine's memory is of use.
Status check_size(std::uint64_t size, const FileSeal& seal) {
  if (size != seal.bytes)
    return malformed(
        fmt::format("{}: {} bytes, {} were written", size < seal.bytes ? "truncated" : "too long", size, seal.bytes));
  auto memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (size > memory)
    return Error{Code::invalid,
                 fmt::format("{} do not fit this machine's {}", format_bytes(size), format_bytes(memory))};
  return {};
}

/// The header with its length, as it is in the file.
Result<std::string> read_header(InFile& file) {
  std::string header(std::min<std::uint64_t>(kLengthBytes, file.size()), '\0');
  PLIANT_TRY(file.read(header.data(), header.size()));
  auto length = decode_length(header, file.size());
  if (!length) return file.named(length.error());
  header.resize(kLengthBytes + length.value());
  PLIANT_TRY(file.read(header.data() + kLengthBytes, length.value()));
  return header;
}

Result<Tensors> read_tensors(InFile& file, const FileSeal& seal) {
  auto header = read_header(file);
  if (!header) return header.error();
  auto text = std::string_view(header.value()).substr(kLengthBytes);
  auto places = decode_header(text, file.size() - header.value().size());
  if (!places) return file.named(places.error());
  Tensors tensors;
  auto digest = digest_bytes(header.value().data(), header.value().size());
  for (auto& place : places.value()) {
    Checkpoint::Tensor tensor{place.dtype, std::move(place.shape), std::vector<std::byte>(place.size())};
    PLIANT_TRY(file.read(tensor.data.data(), tensor.data.size()));
    digest = digest_bytes(tensor.data.data(), tensor.data.size(), digest);
    tensors.emplace(std::move(place.name), std::move(tensor));
  }
  if (digest != seal.digest)
    return file.named(malformed(fmt::format("altered: digest {:016x}, {:016x} was written", digest, seal.digest)));
  return tensors;
}

}  // namespace

Status StateImage::reserve(std::size_t size) {
  if (size <= capacity_) return {};
  memory_.reset();
  capacity_ = 0;
  memory_.reset(new (std::nothrow) std::byte[size]);
  if (!memory_) return Error{Code::io, fmt::format("no memory for a copy of {}", format_bytes(size))};
  capacity_ = size;
  return {};
}

Status StateImage::fill(const std::vector<StateItem>& items, std::uint64_t step) {
  size_ = 0;
  auto sorted = in_file_order(items);
  auto places = place_tensors(sorted);
  if (!places) return places.error();
  places_ = std::move(places).value();
  // "pt": others load it as PyTorch's tensors.
  auto header = encode_header(places_, {{"format", "pt"}, {"step", std::to_string(step)}});
  auto size = header.size() + (places_.empty() ? 0 : places_.back().end);
  if (header.size() - kLengthBytes > kLongestHeader)
    return Error{Code::invalid,
                 fmt::format("{} states need a header of {}", items.size(), format_bytes(header.size()))};
  PLIANT_TRY(reserve(size));
  std::memcpy(memory_.get(), header.data(), header.size());
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i]->bytes() > 0)
      std::memcpy(memory_.get() + header.size() + places_[i].begin, sorted[i]->data, sorted[i]->bytes());
  header_size_ = header.size();
  size_ = size;
  return {};
}

FileSeal StateImage::seal() const {
  auto digest = digest_bytes(memory_.get(), header_size_);
  for (const auto& place : places_)
    digest = digest_bytes(memory_.get() + header_size_ + place.begin, place.size(), digest);
  return {size_, digest};
}

Result<Tensors> read_state(const std::string& path, const FileSeal& seal) {
  auto file = InFile::open(path);
  if (!file) return file.error();
  if (auto fits = check_size(file.value().size(), seal); !fits) return file.value().named(fits.error());
  return read_tensors(file.value(), seal);
}

Result<std::string> read_text(const std::string& path, std::uint64_t most) {
  auto file = InFile::open(path);
  if (!file) return file.error();
  if (file.value().size() > most)
    return file.value().named(malformed(fmt::format("{} bytes, at most {} are read", file.value().size(), most)));
  std::string text(file.value().size(), '\0');
  PLIANT_TRY(file.value().read(text.data(), text.size()));
  return text;
}

}  // namespace pliant::session
