// checkpoint.json: where the job was, and what state.safetensors beside it must be.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "session/checkpoint.h"
#include "session/state_file.h"

namespace pliant::session {

struct CheckpointRecord {
  Position position;
  FileSeal state;
};

/// JSON that people can read. Its last field is a digest of all the others.
std::string encode_record(const CheckpointRecord& record);
/// Code::protocol, in one line, for what encode_record did not write. Only the white space may differ.
Result<CheckpointRecord> decode_record(std::string_view text);

}  // namespace pliant::session
