// checkpoint.json. What is accepted means the same when it is written again.
#include "fuzz/fuzz.h"
#include "session/checkpoint_record.h"

namespace pliant::fuzz {

std::vector<Bytes> seeds() {
  session::CheckpointRecord record;
  auto plain = session::encode_record(record);
  step::Ledger ledger(100);
  ledger.commit(50);
  ledger.give_back({{3, 7}, {20, 30}});
  record.position.job = "mnist";
  record.position.loop = 2;
  record.position.ledger = ledger;
  auto full = session::encode_record(record);
  return {Bytes(plain.begin(), plain.end()), Bytes(full.begin(), full.end())};
}

void run(std::span<const std::uint8_t> input) {
  auto record = session::decode_record({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!record) {
    PLIANT_ASSERT(record.error().message.find('\n') == std::string::npos);
    return;
  }
  auto again = session::encode_record(record.value());
  PLIANT_ASSERT(session::encode_record(session::decode_record(again).or_throw()) == again);
}

}  // namespace pliant::fuzz
