#include "data/gzip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/fd.h"

namespace pliant::data {
namespace {

constexpr std::size_t kChunk = 128 << 10;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib's way to ask for gzip's header and checksum

using Bytes = std::vector<std::uint8_t>;

Error too_long(std::uint64_t most) { return Error{Code::invalid, fmt::format("more than {} bytes", most)}; }

/// One zlib stream that is fed pieces of a file.
class Inflater {
 public:
  explicit Inflater(std::uint64_t most) : most_(most) { started_ = inflateInit2(&stream_, kGzipOnly) == Z_OK; }
  ~Inflater() {
    if (started_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  Status feed(std::span<const std::uint8_t> piece) {
    if (!started_) return Error{Code::internal, "zlib does not start"};
    while (!piece.empty()) {
      auto now = piece.first(std::min<std::size_t>(piece.size(), kChunk));
      PLIANT_TRY(feed_chunk(now));
      piece = piece.subspan(now.size());
    }
    return {};
  }

  Result<Bytes> take() {
    if (!member_ended_) return Error{Code::protocol, "gzip data cut short"};
    return std::move(out_);
  }

 private:
  Status feed_chunk(std::span<const std::uint8_t> chunk) {
    stream_.next_in = const_cast<Bytef*>(chunk.data());
    stream_.avail_in = static_cast<uInt>(chunk.size());
    bool full = true;  // a full output buffer may leave bytes inside zlib although the input is used up
    while (stream_.avail_in > 0 || full) {
      if (member_ended_) {
        if (stream_.avail_in == 0) break;
        inflateReset(&stream_);  // whatever follows a member must be another one
        member_ended_ = false;
      }
      std::array<std::uint8_t, kChunk> room;
      stream_.next_out = room.data();
      stream_.avail_out = static_cast<uInt>(room.size());
      int answer = inflate(&stream_, Z_NO_FLUSH);
      if (answer != Z_OK && answer != Z_STREAM_END && answer != Z_BUF_ERROR)
        return Error{Code::protocol,
                     fmt::format("gzip data corrupt: {}", stream_.msg ? stream_.msg : "not a gzip member")};
      auto got = room.size() - stream_.avail_out;
      if (got > most_ - out_.size()) return too_long(most_);
      out_.insert(out_.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(got));
      member_ended_ = answer == Z_STREAM_END;
      full = stream_.avail_out == 0;
    }
    return {};
  }

  std::uint64_t most_;
  z_stream stream_{};
  bool started_ = false;
  bool member_ended_ = false;
  Bytes out_;
};

Result<std::size_t> read_some(const Fd& file, std::span<std::uint8_t> room) {
  while (true) {
    auto got = ::read(file.get(), room.data(), room.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return Error{Code::io, std::generic_category().message(errno)};
  }
}

/// Fills `room` as far as the file goes, so that the first piece always shows both magic bytes.
Result<std::size_t> read_full(const Fd& file, std::span<std::uint8_t> room) {
  std::size_t have = 0;
  while (have < room.size()) {
    auto got = read_some(file, room.subspan(have));
    if (!got) return got.error();
    if (got.value() == 0) break;
    have += got.value();
  }
  return have;
}

Result<Bytes> read_open(const Fd& file, std::uint64_t most) {
  Bytes room(kChunk);
  Bytes plain;
  Inflater inflater(most);
  bool first = true;
  bool gzipped = false;
  while (true) {
    auto got = read_full(file, room);
    if (!got) return got.error();
    auto piece = std::span<const std::uint8_t>(room).first(got.value());
    if (first) gzipped = piece.size() >= 2 && piece[0] == 0x1f && piece[1] == 0x8b;
    first = false;
    if (piece.empty()) break;
    if (gzipped) {
      PLIANT_TRY(inflater.feed(piece));
    } else {
      if (piece.size() > most - plain.size()) return too_long(most);
      plain.insert(plain.end(), piece.begin(), piece.end());
    }
  }
  return gzipped ? inflater.take() : Result<Bytes>(std::move(plain));
}

}  // namespace

Result<Bytes> read_whole(const std::string& path, std::uint64_t most) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error(path);
  auto bytes = read_open(file, most);
  if (!bytes) return Error{bytes.error().code, fmt::format("{}: {}", path, bytes.error().message)};
  return bytes;
}

Result<Bytes> gunzip(std::span<const std::uint8_t> bytes, std::uint64_t most) {
  Inflater inflater(most);
  PLIANT_TRY(inflater.feed(bytes));
  return inflater.take();
}

Result<std::string> plain_or_gz(const std::string& path) {
  for (const auto& candidate : {path, path + ".gz"})
    if (::access(candidate.c_str(), F_OK) == 0) return candidate;
  return Error{Code::not_found, fmt::format("{}: not there, nor with .gz", path)};
}

}  // namespace pliant::data
