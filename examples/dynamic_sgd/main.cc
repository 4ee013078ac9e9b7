// Dynamic SGD: a batch that becomes twelve times as large in mid-training, and what that does to momentum.
//
// Gradients of a larger batch are less noisy, so the rate may grow with it; but the momentum was gathered at the small
// batch, and its noise grows with the rate at once. --mode shows the three ways: `static` keeps the rate, `instant`
// multiplies it together with the batch, `compensated` lets it grow over some steps, while the old momentum fades.
//
//   pliant run -n 1 --max 4 -- dynamic_sgd --at 1000 --mode compensated
#include "../common/small_training.h"

namespace {

/// The job asks for more workers after a step; when they are there, the batch grows.
struct Growth final : pliant::Policy {
  pliant::Action after_step(const pliant::StepReport& seen) override {
    if (seen.step == at) return pliant::resize(workers);
    if (seen.step > at && seen.size == workers && seen.global_batch != batch) return pliant::batch_of(batch);
    return pliant::keep();
  }
  std::uint64_t at = 0, batch = 768;
  int workers = 4;
};

}  // namespace

int main(int argc, char** argv) {
  SmallOptions options;
  options.global_batch = 64;
  std::string mode = "compensated";
  Growth growth;
  double base = 64;
  pliant::rules::Compensation::Options compensation;
  CLI::App app{"Trains while the batch changes, with or without momentum compensation."};
  add_small_options(app, options);
  app.add_option("--mode", mode, "static, instant or compensated")
      ->check(CLI::IsMember({"static", "instant", "compensated"}))
      ->capture_default_str();
  app.add_option("--base", base, "the batch that --lr is for")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--at", growth.at, "grow after this step; 0: never")->capture_default_str();
  app.add_option("--workers", growth.workers, "that are asked for")->check(CLI::Range(1, 512))->capture_default_str();
  app.add_option("--to", growth.batch, "samples per step, once they are there")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--ramp", compensation.ramp, "steps until the rate has grown; 0: by how much it grows");
  app.add_flag("--literal", compensation.literal, "shrink over as many steps too, as published");
  return run_example(argc, argv, app, [&] {
    train_small(options, {}, [&](pliant::Session& session, pliant::DistributedOptimizer& optimizer) {
      if (growth.at) session.use<Growth>(growth);
      auto rate = pliant::rules::constant(options.lr) * pliant::rules::cosine_decay();
      optimizer.rate(mode == "instant" ? rate * pliant::rules::linear_scaling(base) : rate);
      if (mode == "compensated") optimizer.compensate(compensation);
    });
  });
}
