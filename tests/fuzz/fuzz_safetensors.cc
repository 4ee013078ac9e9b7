// The header of a safetensors file, with its length before it; what is behind it are the data.
#include "fuzz/fuzz.h"
#include "session/safetensors.h"

namespace pliant::fuzz {
namespace {

using session::TensorPlace;

Bytes file_of(const std::vector<TensorPlace>& places) {
  auto text = session::encode_header(places, {{"format", "pt"}});
  Bytes bytes(text.begin(), text.end());
  bytes.resize(bytes.size() + (places.empty() ? 0 : places.back().end));
  return bytes;
}

void check_cover(const std::vector<TensorPlace>& places, std::uint64_t data_size) {
  std::uint64_t at = 0;
  for (const auto& place : places) {
    PLIANT_ASSERT(place.begin == at && place.end >= at && place.end <= data_size);
    PLIANT_ASSERT(*session::elements_of(place.shape) * size_of(place.dtype) == place.size());
    at = place.end;
  }
  PLIANT_ASSERT(at == data_size);
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<TensorPlace> every;
  std::uint64_t at = 0;
  for (int type = 0; type < kDtypes; ++type) {
    auto dtype = static_cast<Dtype>(type);
    every.push_back({std::string(name_of(dtype)), dtype, {1, 2}, at, at + 2 * size_of(dtype)});
    at = every.back().end;
  }
  return {file_of({}), file_of({{"w", Dtype::f32, {}, 0, 4}}), file_of(every)};
}

void run(std::span<const std::uint8_t> input) {
  std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  auto length = session::decode_length(bytes, bytes.size());
  if (!length) return;
  auto data_size = bytes.size() - session::kLengthBytes - length.value();
  auto places = session::decode_header(bytes.substr(session::kLengthBytes, length.value()), data_size);
  if (!places) {
    PLIANT_ASSERT(places.error().message.find('\n') == std::string::npos);
    return;
  }
  check_cover(places.value(), data_size);
  auto again = session::encode_header(places.value(), {}).substr(session::kLengthBytes);
  PLIANT_ASSERT(session::decode_header(again, data_size).or_throw() == places.value());
}

}  // namespace pliant::fuzz
