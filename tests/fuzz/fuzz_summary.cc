#include "fuzz/fuzz.h"
#include "step/summary.h"

namespace pliant::fuzz {

std::vector<Bytes> seeds() {
  step::SummaryRow row;
  row.step = 3;
  row.samples = 64;
  auto plain = step::encode(row);
  row.logs = {{"loss", 0.5, 64}, {"accuracy", 0.9, 64}};
  auto logged = step::encode(row);
  row.policies.assign(4, {7, std::string(step::kLongestFailure, 'x')});
  auto failed = step::encode(row);
  return {Bytes(plain.begin(), plain.end()), Bytes(logged.begin(), logged.end()), Bytes(failed.begin(), failed.end())};
}

void run(std::span<const std::uint8_t> input) {
  std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  auto row = step::decode_summary(bytes);
  if (!row) return;
  PLIANT_ASSERT(step::encode(row.value()) == bytes);
  (void)step::fold({row.value(), row.value()});
}

}  // namespace pliant::fuzz
