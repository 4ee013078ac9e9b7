// Dynamic SGD: a batch that becomes twelve times as large in mid-training, and what that does to momentum.
//
// Gradients of a larger batch are less noisy, so the rate may grow with it; but the momentum was gathered at the small
// batch, and its noise grows with the rate at once. --mode shows the three ways: `static` keeps the rate, `instant`
// multiplies it together with the batch, `compensated` lets it grow over some steps, while the old momentum fades.
//
//   pliant run -n 1 --max 4 --policy schedule:1x1000,4x1000000 --policy schedule:64x1000,768x1000000,of=batch --
//     dynamic_sgd --mode compensated
#include "../common/small_training.h"

int main(int argc, char** argv) {
  SmallOptions options;
  std::string mode = "compensated";
  double base = 64;
  pliant::rules::Compensation::Options compensation;
  CLI::App app{"Trains while the batch changes, with or without momentum compensation."};
  add_small_options(app, options);
  app.add_option("--mode", mode, "static, instant or compensated")
      ->check(CLI::IsMember({"static", "instant", "compensated"}))
      ->capture_default_str();
  app.add_option("--base", base, "the batch that --lr is for")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--ramp", compensation.ramp, "steps until the rate has grown; 0: by how much it grows");
  app.add_flag("--literal", compensation.literal, "shrink over as many steps too, as published");
  return run_example(argc, argv, app, [&] {
    train_small(options, {}, [&](pliant::Session&, pliant::DistributedOptimizer& optimizer) {
      if (mode == "instant")
        optimizer.rate(pliant::rules::constant(options.lr) * pliant::rules::linear_scaling(base));
      else
        optimizer.rate(pliant::rules::constant(options.lr));
      if (mode == "compensated") optimizer.compensate(compensation);
    });
  });
}
