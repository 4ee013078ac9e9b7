// Large batches as they are practised: the rate grows with the batch, after a warm-up; and layers with rates of their
// own where that is not enough.
//
//   pliant run -n 4 -- large_batch --scaling linear --warm-up 2
//   pliant run -n 4 -- large_batch --batch 1024 --scaling linear --warm-up 2 --layerwise larc
#include "../common/small_training.h"

int main(int argc, char** argv) {
  namespace rules = pliant::rules;
  SmallOptions options;
  pliant::OptimizerOptions optimizer_options;
  std::string scaling = "linear", decay = "cosine", layerwise = "none";
  double base = 64, warm_up = 1;
  CLI::App app{"Trains at a large batch, with the rate that goes with it."};
  add_small_options(app, options);
  app.add_option("--base", base, "the batch that --lr is for")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--scaling", scaling, "none, linear or sqrt")
      ->check(CLI::IsMember({"none", "linear", "sqrt"}))
      ->capture_default_str();
  app.add_option("--warm-up", warm_up, "epochs until the rate is reached")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--decay", decay, "none or cosine")->check(CLI::IsMember({"none", "cosine"}))->capture_default_str();
  app.add_option("--layerwise", layerwise, "none, lars or larc")
      ->check(CLI::IsMember({"none", "lars", "larc"}))
      ->capture_default_str();
  return run_example(argc, argv, app, [&] {
    if (layerwise == "lars") optimizer_options.layerwise = pliant::Layerwise::lars;
    if (layerwise == "larc") optimizer_options.layerwise = pliant::Layerwise::larc;
    train_small(options, optimizer_options, [&](pliant::Session&, pliant::DistributedOptimizer& optimizer) {
      auto rate = rules::constant(options.lr);
      if (decay == "cosine") rate = rate * rules::cosine_decay();
      if (scaling == "linear") rate = rate * rules::linear_scaling(base);
      if (scaling == "sqrt") rate = rate * rules::square_root_scaling(base);
      if (warm_up > 0) rate = rate * rules::warm_up(warm_up);
      optimizer.rate(rate);
    });
  });
}
