// A policy of ten lines: as many workers as the noise in the gradient is worth.
//
// Early in training gradients agree, and a small batch tells as much as a large one. Later they disagree, and the batch
// at which noise and signal are equal, the noise scale, grows. This job starts small and grows with it.
//
//   pliant run -n 1 --max 4 -- noise_scale
#include <algorithm>

#include "../common/small_training.h"

namespace {

struct FollowNoise final : pliant::Policy {
  FollowNoise(int fewest, int most) : fewest_(fewest), most_(most) {}
  pliant::Action after_step(const pliant::StepReport& seen) override {
    if (seen.step % 100 != 99 || !seen.noise_scale) return pliant::keep();
    auto wanted = *seen.noise_scale / static_cast<double>(seen.local_batch);
    return pliant::resize(static_cast<int>(std::clamp(wanted, double(fewest_), double(most_))));
  }
  int fewest_, most_;
};

}  // namespace

int main(int argc, char** argv) {
  SmallOptions options;
  int most = 4;
  CLI::App app{"Trains on as many workers as the gradient's noise is worth."};
  add_small_options(app, options);
  app.add_option("--most", most, "workers")->check(CLI::Range(1, 512))->capture_default_str();
  return run_example(argc, argv, app, [&] {
    train_small(options, {}, [&](pliant::Session& session, pliant::DistributedOptimizer& optimizer) {
      session.monitor({.noise_scale = 1, .noise_memory = 0.99});
      session.use<FollowNoise>(1, most);
      optimizer.rate(pliant::rules::constant(options.lr));
      optimizer.compensate();
    });
  });
}
