// What newcomers are told of monitors and policies, and what checkpoints keep of them.
#include "fuzz/fuzz.h"
#include "policy/action.h"
#include "session/adaptation.h"

namespace pliant::fuzz {
namespace {

std::unique_ptr<session::Adaptation> some_adaptation() {
  auto adaptation = std::make_unique<session::Adaptation>();
  adaptation->use("schedule", make_policy("schedule:2x10,4x20"));
  return adaptation;
}

}  // namespace

std::vector<Bytes> seeds() {
  auto action = policy::encode(batch_of(64).also(say("enough")));
  auto saved = some_adaptation()->save();
  return {Bytes(action.begin(), action.end()), Bytes(saved.begin(), saved.end())};
}

void run(std::span<const std::uint8_t> input) {
  std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  if (auto action = policy::decode_action(bytes)) {
    (void)policy::describe(action.value());
    (void)policy::objection_to(action.value());
  }
  static auto adaptation = some_adaptation();
  try {
    if (adaptation->load(bytes).ok()) (void)adaptation->save();
  } catch (const Failure&) {  // a policy does not know what to make of it
  }
}

}  // namespace pliant::fuzz
