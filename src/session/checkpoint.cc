#include "session/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cstring>
#include <set>
#include <utility>

#include "base/log.h"
#include "session/checkpoint_draft.h"
#include "session/checkpoint_record.h"
#include "session/safetensors.h"
#include "session/state_file.h"

namespace pliant::session {
namespace {

constexpr std::uint64_t kLongestRecord = 64 << 20;  // a ledger with millions of returned ranges
constexpr int kLooks = 10;

Result<CheckpointRecord> read_record(const std::string& folder) {
  auto path = folder + kRecordFile;
  auto text = read_text(path, kLongestRecord);
  if (!text) return text.error();
  auto record = decode_record(text.value());
  if (!record) return Error{record.error().code, fmt::format("{}: {}", path, record.error().message)};
  return record;
}

/// All that can be said without reading the state itself.
bool looks_complete(const std::string& folder) {
  auto record = read_record(folder);
  struct stat state {};
  return record && stat((folder + kStateFile).c_str(), &state) == 0 && S_ISREG(state.st_mode) &&
         static_cast<std::uint64_t>(state.st_size) == record.value().state.bytes;
}

bool exists(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0;
}

/// The first of `steps` that is good.
std::optional<Checkpoint> first_good(const std::string& dir, const std::vector<std::uint64_t>& steps,
                                     const PassedOver& passed_over) {
  for (auto step : steps) {
    auto folder = folder_of_step(dir, step);
    auto checkpoint = read_checkpoint(folder);
    if (checkpoint) return std::move(checkpoint).value();
    // One that went meanwhile was removed because newer ones came.
    if (exists(folder)) passed_over(checkpoint.error().message);
  }
  return std::nullopt;
}

std::string text_of(Dtype dtype, const std::vector<std::uint64_t>& shape) {
  return fmt::format("{}[{}]", name_of(dtype), fmt::join(shape, ", "));
}

bool fits(const Checkpoint::Tensor& tensor, const StateItem& item) {
  if (tensor.dtype != item.dtype || tensor.data.size() != item.bytes()) return false;
  // One of the two may know no shape, and then says one dimension.
  return item.shape.size() <= 1 || tensor.shape.size() <= 1 || tensor.shape == item.shape;
}

Status check_item(const Checkpoint& checkpoint, const StateItem& item) {
  auto found = checkpoint.tensors.find(item.name);
  if (found == checkpoint.tensors.end())
    return Error{Code::mismatch, fmt::format("{}: no {}, which this job has", checkpoint.folder, in_quotes(item.name))};
  if (fits(found->second, item)) return {};
  auto wanted = text_of(item.dtype, item.shape.empty() ? std::vector<std::uint64_t>{item.count} : item.shape);
  return Error{Code::mismatch, fmt::format("{}: {} is {}, but {} in this job", checkpoint.folder, in_quotes(item.name),
                                           text_of(found->second.dtype, found->second.shape), wanted)};
}

}  // namespace

Result<std::string> write_checkpoint(const std::string& dir, const Position& position,
                                     const std::vector<StateItem>& items) {
  StateImage image;
  PLIANT_TRY(image.fill(items, position.step));
  auto draft = write_draft(dir, position, image);
  if (!draft) return draft.error();
  return draft.value().publish(position.step);
}

Result<Checkpoint> read_checkpoint(const std::string& folder) {
  auto record = read_record(folder);
  if (!record) return record.error();
  auto tensors = read_state(folder + kStateFile, record.value().state);
  if (!tensors) return tensors.error();
  return Checkpoint{std::move(record.value().position), folder, std::move(tensors).value()};
}

Result<Checkpoint> newest_checkpoint(const std::string& dir, const PassedOver& passed_over) {
  auto warn = [](const std::string& why) { log::warn("checkpoint passed over: {}", why); };
  auto steps = steps_in(dir);
  for (int attempt = 0; attempt < kLooks; ++attempt) {
    if (auto found = first_good(dir, steps, passed_over ? passed_over : warn)) return std::move(*found);
    // A writer may have removed all of them in the meantime, for newer ones.
    auto now = steps_in(dir);
    if (std::exchange(steps, now) == now) break;
  }
  if (steps.empty()) return Error{Code::not_found, fmt::format("{}: no checkpoint", dir)};
  return Error{Code::not_found, fmt::format("{}: no good checkpoint ({} broken)", dir, steps.size())};
}

void prune_checkpoints(const std::string& dir, int keep) {
  int kept = 0;
  for (auto step : steps_in(dir)) {
    if (kept >= keep)
      remove_step(dir, step);
    else if (looks_complete(folder_of_step(dir, step)))
      ++kept;
  }
  remove_orphans(dir);
}

Status restore(const Checkpoint& checkpoint, const std::vector<StateItem>& items) {
  std::set<std::string_view> names;
  for (const auto& item : items) {
    PLIANT_TRY(check_item(checkpoint, item));
    names.insert(item.name);
  }
  for (const auto& [name, tensor] : checkpoint.tensors)
    if (!names.contains(name))
      return Error{Code::mismatch, fmt::format("{}: {} is none of this job's", checkpoint.folder, in_quotes(name))};
  for (const auto& item : items)
    if (item.bytes() > 0) std::memcpy(item.data, checkpoint.tensors.at(item.name).data.data(), item.bytes());
  return {};
}

}  // namespace pliant::session
