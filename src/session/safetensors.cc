#include "session/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace pliant::session {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kLongestShown = 60;

struct TypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr TypeName kTypes[] = {{"F32", Dtype::f32},   {"F64", Dtype::f64}, {"F16", Dtype::f16},
                               {"BF16", Dtype::bf16}, {"I8", Dtype::i8},   {"U8", Dtype::u8},
                               {"I32", Dtype::i32},   {"I64", Dtype::i64}, {"BOOL", Dtype::u8}};

std::string_view format_name(Dtype dtype) { return std::ranges::find(kTypes, dtype, &TypeName::dtype)->name; }

bool is_utf8(const std::string& text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

std::vector<std::uint64_t> shape_of(const StateItem& item) {
  if (!item.shape.empty() && elements_of(item.shape) == item.count) return item.shape;
  return {item.count};
}

/// Takes the header apart while it is parsed, so that no document is built of what does not belong there.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  std::vector<TensorPlace> take_places() { return std::move(places_); }
  /// What was wrong, after a parse that failed.
  const std::string& problem() const { return problem_; }

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return misplaced("a number that is no integer"); }
  bool binary(binary_t&) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::numbers) return misplaced("a number");
    (field_ == Field::shape ? places_.back().shape : offsets_).push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (where_ == Where::metadata) return true;
    if (where_ != Where::tensor || field_ != Field::dtype) return misplaced("a string");
    const auto* type = std::ranges::find(kTypes, std::string_view(text), &TypeName::name);
    if (type == std::end(kTypes)) return fail(fmt::format("type {} is none that is held here", in_quotes(text)));
    places_.back().dtype = type->dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (where_ == Where::outside) return go(Where::top);
    if (where_ == Where::top) return go(in_metadata_ ? Where::metadata : Where::tensor);
    return misplaced("an object");
  }

  bool key(string_t& name) override {
    if (where_ == Where::tensor) return begin_field(name);
    if (where_ == Where::metadata) return true;
    in_metadata_ = name == kMetadata;
    if (in_metadata_) return std::exchange(metadata_seen_, true) ? fail("__metadata__ twice") : true;
    places_.emplace_back().name = name;
    seen_ = {};
    offsets_.clear();
    return true;
  }

  bool end_object() override {
    if (where_ == Where::top) return go(Where::outside);
    if (where_ == Where::metadata) {
      in_metadata_ = false;
      return go(Where::top);
    }
    if (std::ranges::count(seen_, false) > 0) return fail("dtype, shape or data_offsets is missing");
    if (offsets_.size() != 2) return fail(fmt::format("{} data_offsets instead of 2", offsets_.size()));
    places_.back().begin = offsets_[0];
    places_.back().end = offsets_[1];
    return go(Where::top);
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::tensor || field_ == Field::dtype) return misplaced("a list");
    return go(Where::numbers);
  }
  bool end_array() override { return go(Where::tensor); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem_ = fmt::format("header is not JSON at byte {}", position);
    return false;
  }

 private:
  enum class Where { outside, top, tensor, numbers, metadata };
  enum class Field : std::size_t { dtype, shape, offsets };
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};

  bool begin_field(const std::string& name) {
    const auto* found = std::ranges::find(kFields, std::string_view(name));
    if (found == std::end(kFields)) return fail(fmt::format("unknown field {}", in_quotes(name)));
    auto index = static_cast<std::size_t>(found - kFields);
    if (std::exchange(seen_.at(index), true)) return fail(fmt::format("{} twice", name));
    field_ = static_cast<Field>(index);
    return true;
  }

  bool go(Where where) {
    where_ = where;
    return true;
  }
  bool misplaced(std::string_view what) { return fail(fmt::format("{} where it does not belong", what)); }
  bool fail(const std::string& why) {
    auto inside = !places_.empty() && !in_metadata_ && where_ != Where::outside;
    problem_ = inside ? fmt::format("header: {}: {}", in_quotes(places_.back().name), why) : "header: " + why;
    return false;
  }

  Where where_ = Where::outside;
  Field field_ = Field::dtype;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  std::array<bool, 3> seen_{};          // fields of the last place
  std::vector<std::uint64_t> offsets_;  // of the last place
  std::vector<TensorPlace> places_;
  std::string problem_;
};

Status check_sizes(const TensorPlace& place) {
  auto name = in_quotes(place.name);
  if (place.begin > place.end)
    return malformed(fmt::format("{} ends at {}, before its begin {}", name, place.end, place.begin));
  auto elements = elements_of(place.shape);
  std::uint64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, std::uint64_t{size_of(place.dtype)}, &bytes))
    return malformed(fmt::format("the shape of {} has over 2^64 bytes", name));
  if (bytes != place.size())
    return malformed(fmt::format("{} has {} bytes by its shape, {} by its offsets", name, bytes, place.size()));
  return {};
}

/// REQUIRES the order of begin and end.
Status check_cover(const std::vector<TensorPlace>& places, std::uint64_t data_size) {
  std::uint64_t at = 0;
  for (const auto& place : places) {
    if (place.begin != at)
      return malformed(fmt::format("{} begins at {}, {} byte {}", in_quotes(place.name), place.begin,
                                   place.begin < at ? "overlapping what is before" : "leaving a hole from", at));
    at = place.end;
  }
  if (at == data_size) return {};
  return malformed(fmt::format("{}: tensors of {} bytes announced, {} there", at > data_size ? "truncated" : "too long",
                               at, data_size));
}

Status check_names(const std::vector<TensorPlace>& places) {
  std::set<std::string_view> names;
  for (const auto& place : places)
    if (!names.insert(place.name).second) return malformed(fmt::format("{} is there twice", in_quotes(place.name)));
  return {};
}

}  // namespace

std::optional<std::uint64_t> elements_of(const std::vector<std::uint64_t>& shape) {
  if (std::ranges::count(shape, 0U) > 0) return 0;
  std::uint64_t product = 1;
  for (auto size : shape)
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  return product;
}

std::string in_quotes(std::string_view name) {
  auto shown = std::min(name.size(), kLongestShown);
  while (shown > 0 && shown < name.size() && (name[shown] & 0xc0) == 0x80) --shown;  // not inside a character
  std::string text = "'";
  for (char c : name.substr(0, shown)) text += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  return text + (shown < name.size() ? "…'" : "'");
}

std::vector<const StateItem*> in_file_order(const std::vector<StateItem>& items) {
  std::vector<const StateItem*> sorted;
  for (const auto& item : items) sorted.push_back(&item);
  std::ranges::stable_sort(sorted, std::greater{}, [](const StateItem* item) { return size_of(item->dtype); });
  return sorted;
}

Result<std::vector<TensorPlace>> place_tensors(const std::vector<const StateItem*>& items) {
  std::vector<TensorPlace> places;
  std::set<std::string_view> names{kMetadata};
  std::uint64_t at = 0;
  for (const auto* item : items) {
    if (!is_utf8(item->name)) return Error{Code::invalid, "the name of a state is not UTF-8"};
    if (!names.insert(item->name).second)
      return Error{Code::invalid, fmt::format("the name {} of a state is taken", in_quotes(item->name))};
    places.push_back({item->name, item->dtype, shape_of(*item), at, at + item->bytes()});
    at += item->bytes();
  }
  return places;
}

std::string encode_header(const std::vector<TensorPlace>& places, const std::map<std::string, std::string>& metadata) {
  auto text = fmt::format("{{\"{}\":{}", kMetadata, json(metadata).dump());
  for (const auto& place : places)
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json(place.name).dump(),
                        format_name(place.dtype), fmt::join(place.shape, ","), place.begin, place.end);
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::uint64_t length = text.size();
  std::string prefix(kLengthBytes, '\0');
  std::memcpy(prefix.data(), &length, kLengthBytes);
  return prefix + text;
}

Result<std::uint64_t> decode_length(std::string_view first_bytes, std::uint64_t file_size) {
  if (file_size < kLengthBytes || first_bytes.size() < kLengthBytes)
    return malformed(fmt::format("not safetensors: {} bytes", std::min<std::uint64_t>(file_size, first_bytes.size())));
  std::uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > file_size - kLengthBytes)
    return malformed(fmt::format("truncated or not safetensors: a header of {} bytes announced, {} there", length,
                                 file_size - kLengthBytes));
  if (length > kLongestHeader)
    return malformed(fmt::format("header of {} bytes, at most {} are read", length, kLongestHeader));
  return length;
}

Result<std::vector<TensorPlace>> decode_header(std::string_view header, std::uint64_t data_size) {
  HeaderReader reader;
  if (!header.starts_with('{')) return malformed("not safetensors: the header does not begin with '{'");
  if (!json::sax_parse(header, &reader)) return malformed(reader.problem());
  auto places = reader.take_places();
  for (const auto& place : places) PLIANT_TRY(check_sizes(place));
  PLIANT_TRY(check_names(places));
  std::ranges::sort(places, {}, [](const TensorPlace& place) { return std::pair(place.begin, place.end); });
  PLIANT_TRY(check_cover(places, data_size));
  return places;
}

}  // namespace pliant::session
