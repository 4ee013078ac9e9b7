// AdaScale: how many steps at a small batch one step at a larger one is worth, measured while training.
//
// The gain lies between 1 (the gradient is all signal: more samples tell nothing new) and the ratio of the batches (all
// noise). Rates are multiplied by it, and schedules move on by it: so loss curves over scale-invariant steps lie on
// each other, whatever the batch.
//
//   pliant run -n 4 -- adascale --batch 64 --base 64 --steps 2000
#include "../common/small_training.h"

int main(int argc, char** argv) {
  SmallOptions options;
  options.epochs = 1000;  // it ends by its steps
  double base = 64, steps = 2000;
  CLI::App app{"Trains with AdaScale: as far as so many steps at the base batch would, at any batch."};
  add_small_options(app, options);
  app.add_option("--base", base, "the batch that --lr and --steps are for")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", steps, "scale-invariant steps of the whole job")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return run_example(argc, argv, app, [&] {
    train_small(options, {}, [&](pliant::Session&, pliant::DistributedOptimizer& optimizer) {
      optimizer.rate(pliant::rules::constant(options.lr) * pliant::rules::cosine_decay());
      optimizer.adascale(base, steps);
    });
  });
}
