// Data sets, augmentation and the loader that prefetches.
#include <pliant/data.h>
#include <pliant/torch.h>

#include <chrono>
#include <future>

#include "base/hash.h"
#include "session/runtime.h"

namespace pliant {
namespace {

torch::Tensor indices_of(const std::vector<std::uint64_t>& samples) {
  auto indices = torch::empty({static_cast<std::int64_t>(samples.size())}, torch::kInt64);
  std::copy(samples.begin(), samples.end(), indices.data_ptr<std::int64_t>());
  return indices;
}

std::pair<torch::Tensor, torch::Tensor> to_tensors(const LabelledImages& images) {
  auto shape = std::vector<std::int64_t>{images.count, images.channels, images.height, images.width};
  auto pixels = torch::empty(shape, torch::kUInt8);
  std::memcpy(pixels.data_ptr(), images.pixels.data(), images.pixels.size());
  auto labels = torch::empty({static_cast<std::int64_t>(images.count)}, torch::kInt64);
  std::copy(images.labels.begin(), images.labels.end(), labels.data_ptr<std::int64_t>());
  return {pixels.to(torch::kFloat32).div_(255), labels};
}

}  // namespace

std::pair<torch::Tensor, torch::Tensor> Dataset::get(std::uint64_t, RandomStream&) {
  throw Failure(Code::invalid, "a data set must override get() or gather()");
}

std::pair<torch::Tensor, torch::Tensor> Dataset::gather(const std::vector<std::uint64_t>& samples,
                                                        const std::function<RandomStream(std::uint64_t)>& random) {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> targets;
  for (auto sample : samples) {
    auto stream = random(sample);
    auto [input, target] = get(sample, stream);
    inputs.push_back(std::move(input));
    targets.push_back(std::move(target));
  }
  if (inputs.empty()) return {};
  return {torch::stack(inputs), torch::stack(targets)};
}

TensorDataset::TensorDataset(torch::Tensor inputs, torch::Tensor targets, Augment augment)
    : inputs_(std::move(inputs)), targets_(std::move(targets)), augment_(std::move(augment)) {
  if (inputs_.size(0) != targets_.size(0))
    throw Failure(Code::invalid, "a data set with " + std::to_string(inputs_.size(0)) + " inputs and " +
                                     std::to_string(targets_.size(0)) + " targets");
}

std::uint64_t TensorDataset::size() const { return static_cast<std::uint64_t>(inputs_.size(0)); }

std::pair<torch::Tensor, torch::Tensor> TensorDataset::gather(
    const std::vector<std::uint64_t>& samples, const std::function<RandomStream(std::uint64_t)>& random) {
  auto rows = indices_of(samples);
  auto inputs = inputs_.index_select(0, rows);
  if (augment_ && !samples.empty()) inputs = augment_(std::move(inputs), samples, random);
  return {std::move(inputs), targets_.index_select(0, rows)};
}

TensorDataset::Augment shift_and_flip(int most, bool flip) {
  return [most, flip](torch::Tensor inputs, const std::vector<std::uint64_t>& samples,
                      const std::function<RandomStream(std::uint64_t)>& random) {
    auto out = torch::zeros_like(inputs);
    auto height = inputs.size(2);
    auto width = inputs.size(3);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto stream = random(samples[i]);
      auto span = static_cast<std::uint64_t>(2 * most + 1);
      auto down = static_cast<std::int64_t>(stream.below(span)) - most;
      auto right = static_cast<std::int64_t>(stream.below(span)) - most;
      auto image = inputs[static_cast<std::int64_t>(i)];
      if (flip && stream.below(2)) image = image.flip({2});
      auto rows = height - std::abs(down);
      auto columns = width - std::abs(right);
      out[static_cast<std::int64_t>(i)]
          .narrow(1, std::max<std::int64_t>(down, 0), rows)
          .narrow(2, std::max<std::int64_t>(right, 0), columns)
          .copy_(image.narrow(1, std::max<std::int64_t>(-down, 0), rows)
                     .narrow(2, std::max<std::int64_t>(-right, 0), columns));
    }
    return out;
  };
}

class Loader::Impl {
 public:
  Impl(session::Runtime& runtime, ElasticSampler& sampler, Dataset& dataset)
      : runtime_(runtime), sampler_(sampler), dataset_(dataset) {}
  ~Impl() {
    if (ahead_.valid()) ahead_.wait();
  }

  Batch next() {
    auto began = std::chrono::steady_clock::now();
    auto batch = take();
    runtime_.count_input(std::chrono::steady_clock::now() - began);
    return batch;
  }

 private:
  Batch take() {
    auto lease = sampler_.next();
    Batch batch;
    bool foreseen = false;
    if (ahead_.valid()) {
      batch = ahead_.get();
      foreseen = batch.lease.step == lease.step && batch.lease.samples == lease.samples;
    }
    if (!foreseen) batch = make(std::move(lease));
    if (auto following = sampler_.peek(); !following.empty())
      ahead_ = std::async(std::launch::async,
                          [this, following = std::move(following)]() mutable { return make(std::move(following)); });
    return batch;
  }

  Batch make(Lease lease) const {
    torch::NoGradGuard no_grad;
    auto seed = runtime_.seed();
    auto [inputs, targets] = dataset_.gather(lease.samples, [&](std::uint64_t sample) {
      return RandomStream(seed, lease.epoch, lease.step, combine(sample, 1));
    });
    return {std::move(inputs), std::move(targets), std::move(lease)};
  }

  session::Runtime& runtime_;
  ElasticSampler& sampler_;
  Dataset& dataset_;
  std::future<Batch> ahead_;
};

Loader::Loader(Session& session, ElasticSampler& sampler, Dataset& dataset)
    : impl_(std::make_unique<Impl>(session.runtime(), sampler, dataset)) {}
Loader::~Loader() = default;
Batch Loader::next() { return impl_->next(); }

std::pair<torch::Tensor, torch::Tensor> read_mnist(const std::string& folder, bool train) {
  // Mean and deviation of Fashion-MNIST's training pixels; fixed, so that training and test are scaled alike.
  auto [inputs, targets] = to_tensors(load_mnist(folder, train));
  return {inputs.sub_(0.2860).div_(0.3530), targets};
}

std::pair<torch::Tensor, torch::Tensor> read_cifar10(const std::string& folder, bool train) {
  auto [inputs, targets] = to_tensors(load_cifar10(folder, train));
  return {inputs.sub_(0.5).div_(0.5), targets};
}

}  // namespace pliant
