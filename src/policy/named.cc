// Policies that come with Pliant, and how any policy is found by its name.
#include "policy/named.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "policy/autoscale.h"
#include "policy/options.h"
#include "policy/stragglers.h"

namespace pliant {
namespace policy {
namespace {

/// How a policy keeps its numbers: as text, to the last bit.
template <class... Numbers>
std::string pack(Numbers... numbers) {
  std::string text;
  ((text += fmt::format("{} ", numbers)), ...);
  return text;
}
template <class... Numbers>
void unpack(std::string_view saved, Numbers&... numbers) {
  auto next = [&](auto& number) {
    auto [end, error] = std::from_chars(saved.data(), saved.data() + saved.size(), number);
    if (error != std::errc()) throw Failure(Code::invalid, "malformed numbers");
    saved.remove_prefix(static_cast<std::size_t>(end - saved.data()));
    if (saved.starts_with(' ')) saved.remove_prefix(1);
  };
  (next(numbers), ...);
}

/// KungFu's: an epoch whose gradients are noisier than those of the one before can use twice the batch, or twice the
/// workers.
class NoiseScalePolicy final : public Policy {
 public:
  explicit NoiseScalePolicy(Options options)
      : resizes_(options.choice("by", {"batch", "workers"}) == "workers"),
        most_(options.count("max", resizes_ ? 16 : 1024)) {
    options.refuse_rest();
  }
  Action after_epoch(const StepReport& seen) override {
    if (!seen.noise_scale) return keep();
    auto before = std::exchange(before_, *seen.noise_scale);
    if (!(before > 0) || *seen.noise_scale <= before) return keep();
    if (resizes_) {
      auto workers = std::min<std::uint64_t>(static_cast<std::uint64_t>(seen.size) * 2, most_);
      return workers > static_cast<std::uint64_t>(seen.size) ? resize(static_cast<int>(workers)) : keep();
    }
    auto batch = std::min(seen.local_batch * 2, most_);
    return batch > seen.local_batch ? batch_per_worker(batch) : keep();
  }
  std::string save() const override { return pack(before_); }
  void load(std::string_view saved) override { unpack(saved, before_); }

 private:
  bool resizes_;
  std::uint64_t most_;
  double before_ = 0;
};

/// "2x100,4x200": 2 workers for 100 steps, then 4 for 200, and from then on.
class SchedulePolicy final : public Policy {
 public:
  explicit SchedulePolicy(Options options)
      : of_(options.choice("of", {"workers", "batch", "local"})),
        by_epoch_(options.choice("by", {"step", "epoch"}) == "epoch") {
    for (const auto& word : options.words()) stages_.push_back(parse_stage(word));
    if (stages_.empty()) throw Failure(Code::invalid, "a schedule needs stages, like 2x100,4x200");
    options.refuse_rest();
  }
  Action before_train(const StepReport& last) override { return at(by_epoch_ ? last.epoch : last.step); }
  Action after_step(const StepReport& seen) override {
    // What is said now holds from the step after the next on.
    return by_epoch_ ? keep() : at(seen.step + 2);
  }
  Action after_epoch(const StepReport& seen) override { return by_epoch_ ? at(seen.epoch + 1) : keep(); }
  std::string save() const override { return pack(said_); }
  void load(std::string_view saved) override { unpack(saved, said_); }

 private:
  Action at(std::uint64_t time) {
    std::uint64_t amount = stages_.back().amount, end = 0;
    for (const auto& stage : stages_) {
      end += stage.length;
      if (time >= end) continue;
      amount = stage.amount;
      break;
    }
    if (std::exchange(said_, amount) == amount) return keep();
    if (of_ == "workers") return resize(static_cast<int>(amount));
    return of_ == "batch" ? batch_of(amount) : batch_per_worker(amount);
  }

  std::string of_;
  bool by_epoch_;
  std::vector<Stage> stages_;
  std::uint64_t said_ = 0;
};

/// Smith et al. (arXiv 1711.00489): instead of dividing the rate, multiply the batch; once it cannot grow, divide.
class GrowInsteadOfDecay final : public Policy {
 public:
  explicit GrowInsteadOfDecay(Options options)
      : epochs_(options.numbers("at")), factor_(options.number("factor", 5)), most_(options.count("max", 8192)) {
    if (epochs_.empty()) throw Failure(Code::invalid, "it needs epochs, like at=30,at=60");
    if (!(factor_ > 1)) throw Failure(Code::invalid, "factor must be more than 1");
    options.refuse_rest();
  }
  Action after_epoch(const StepReport& seen) override {
    if (std::ranges::find(epochs_, static_cast<double>(seen.epoch + 1)) == epochs_.end()) return keep();
    auto wanted = static_cast<double>(seen.global_batch) * factor_;
    auto batch = std::min(wanted, static_cast<double>(most_));
    rate_ *= batch / wanted;  // what the batch cannot do
    Action action;
    if (batch > static_cast<double>(seen.global_batch)) action = batch_of(static_cast<std::uint64_t>(batch));
    return batch < wanted ? action.also(scale_rate(rate_)) : action;
  }
  std::string save() const override { return pack(rate_); }
  void load(std::string_view saved) override { unpack(saved, rate_); }

 private:
  std::vector<double> epochs_;
  double factor_;
  std::uint64_t most_;
  double rate_ = 1;
};

/// As many workers as make a batch of about the noise scale.
class FollowNoise final : public Policy {
 public:
  explicit FollowNoise(Options options)
      : least_(options.count("min", 1)), most_(options.count("max", 16)), every_(options.count("every", 100)) {
    if (least_ > most_) throw Failure(Code::invalid, "min is more than max");
    options.refuse_rest();
  }
  Action after_step(const StepReport& seen) override {
    if ((seen.step + 1) % every_ != 0 || !seen.noise_scale || seen.local_batch == 0) return keep();
    auto wanted = std::clamp(*seen.noise_scale / static_cast<double>(seen.local_batch), static_cast<double>(least_),
                             static_cast<double>(most_));
    auto workers = static_cast<int>(std::lround(wanted));
    return workers == seen.size ? keep() : resize(workers);
  }

 private:
  std::uint64_t least_, most_, every_;
};

/// Says after every epoch how large a batch would be worth while.
class CriticalBatch final : public Policy {
 public:
  explicit CriticalBatch(const Options& options) { options.refuse_rest(); }
  Action after_epoch(const StepReport& seen) override {
    if (!seen.noise_scale) return say(fmt::format("epoch {}: the noise scale is not known yet", seen.epoch));
    auto batch = static_cast<double>(seen.global_batch);
    return say(
        fmt::format("epoch {}: critical batch about {:.0f}{}; at {} a step makes {:.0f} % of the progress of a "
                    "noiseless one",
                    seen.epoch, *seen.noise_scale, seen.noise_biased ? " (from one worker, biased)" : "",
                    seen.global_batch, 100 / (1 + *seen.noise_scale / batch)));
  }
};

template <class P>
PolicyPtr make(std::string_view options) {
  return std::make_unique<P>(Options(options));
}

struct Entry {
  std::string_view name;
  PolicyPtr (*make)(std::string_view);
  std::string_view help;
};
constexpr Entry kEntries[] = {
    {"autoscale", &make<Autoscale>,
     "autoscale[:min=1][,max=16][,efficiency=0.1][,utility=100*exp(-t/600),price=0.01]: finds the number of workers"},
    {"gns", &make<NoiseScalePolicy>, "gns[:by=workers][,max=N]: twice the batch after an epoch with more noise"},
    {"schedule", &make<SchedulePolicy>, "schedule:2x100,4x200[,of=batch|local][,by=epoch]: so many for so long"},
    {"grow", &make<GrowInsteadOfDecay>, "grow:at=30,at=60[,factor=5][,max=N]: a larger batch instead of a lower rate"},
    {"follow-noise", &make<FollowNoise>, "follow-noise[:min=1][,max=16][,every=100]: workers for the noise scale"},
    {"stragglers", &make<StragglerPolicy>,
     "stragglers[:remedy=replace|share|both][,least=0.8]: replaces workers that hold the others up, or gives them "
     "less"},
    {"critical-batch", &make<CriticalBatch>, "critical-batch: says how large a batch is worth while"},
};

PolicyPtr load_object(const std::string& path, const std::string& options) {
  auto full = std::filesystem::absolute(path).string();
  void* object = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its code may be running
  if (!object) throw Failure(Code::not_found, fmt::format("policy {}: {}", path, dlerror()));
  using Maker = Policy* (*)(const char*, int);
  auto make = reinterpret_cast<Maker>(dlsym(object, "pliant_policy"));
  if (!make) throw Failure(Code::invalid, fmt::format("policy {}: it has no PLIANT_POLICY", path));
  PolicyPtr policy(make(options.c_str(), 1));
  if (!policy) throw Failure(Code::mismatch, fmt::format("policy {}: made for another version", path));
  return policy;
}

}  // namespace

std::string named_policies() {
  std::string text;
  for (const auto& entry : kEntries) text += fmt::format("  {}\n", entry.help);
  return text;
}

}  // namespace policy

PolicyPtr make_policy(std::string_view description) {
  auto colon = std::min(description.find(':'), description.size());
  std::string name(description.substr(0, colon));
  std::string options(description.substr(std::min(colon + 1, description.size())));
  if (name.find('/') != std::string::npos || name.ends_with(".so")) return policy::load_object(name, options);
  for (const auto& entry : policy::kEntries) {
    if (entry.name != name) continue;
    try {
      return entry.make(options);
    } catch (const Failure& problem) {
      throw Failure(problem.code(), fmt::format("policy {}: {}", name, problem.what()));
    }
  }
  throw Failure(Code::invalid, fmt::format("there is no policy '{}'. There are:\n{}", name, policy::named_policies()));
}

}  // namespace pliant
