// checkpoint.json: where the job was, and what state.safetensors beside it must be.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "session/checkpoint.h"
#include "session/state_file.h"

namespace pliant::session {

struct CheckpointRecord {
  static constexpr std::uint64_t kVersion = 3;
  Position position;
  FileSeal state;
  std::uint64_t version = kVersion;
};

/// JSON that people can read. Its last field is a digest of all the others.
std::string encode_record(const CheckpointRecord& record);
/// Code::protocol, in one line, for what encode_record of this version or an older one did not write. Only the white
/// space may differ. Versions before 3 had another digest of the state, which is left out, and no loop.
Result<CheckpointRecord> decode_record(std::string_view text);

}  // namespace pliant::session
