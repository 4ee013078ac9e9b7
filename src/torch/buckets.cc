#include "torch/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "base/fault.h"
#include "collective/kernels.h"

namespace pliant::adapter {
namespace {

constexpr std::size_t kAlign = 64;            // slots begin on cache lines
constexpr std::size_t kStreamFrom = 1 << 20;  // gradients from this size on are moved past the caches

std::size_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

/// Gradients that can be born in their slots have whole pages.
std::size_t align_of(const torch::Tensor& parameter) {
  return bytes_of(parameter) >= Places::kLeast ? net::kPage : kAlign;
}

/// Room for the slot wherever the one before it ends.
std::size_t most_slot_bytes(const torch::Tensor& parameter) {
  auto align = align_of(parameter);
  return net::round_up(std::max<std::size_t>(bytes_of(parameter), 1), align) + align;
}

void leave_alone(void* /*memory*/) {}

torch::Tensor view_at(std::byte* at, const torch::Tensor& like, void (*end)(void*) = &leave_alone) {
  auto options = torch::TensorOptions().dtype(like.dtype());
  if (like.is_non_overlapping_and_dense()) return torch::from_blob(at, like.sizes(), like.strides(), end, options);
  return torch::from_blob(at, like.sizes(), end, options);
}

}  // namespace

Dtype dtype_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return Dtype::f32;
    case torch::kFloat64:
      return Dtype::f64;
    case torch::kFloat16:
      return Dtype::f16;
    case torch::kBFloat16:
      return Dtype::bf16;
    case torch::kInt8:
      return Dtype::i8;
    case torch::kUInt8:
    case torch::kBool:
      return Dtype::u8;
    case torch::kInt32:
      return Dtype::i32;
    case torch::kInt64:
      return Dtype::i64;
    default:
      throw Failure(Code::invalid,
                    std::string("tensors of type ") + torch::toString(tensor.scalar_type()) + " cannot be shared");
  }
}

Buckets::Buckets(session::Runtime& runtime, std::vector<torch::Tensor> parameters, const OptimizerOptions& options)
    : runtime_(runtime), options_(options), parameters_(std::move(parameters)), slots_(parameters_.size()) {
  std::map<Dtype, std::size_t> bytes;
  for (const auto& parameter : parameters_) {
    if (!parameter.device().is_cpu()) throw Failure(Code::invalid, "parameters must be in host memory");
    bytes[dtype_of(parameter)] += most_slot_bytes(parameter);
  }
  for (auto [dtype, size] : bytes) regions_[dtype] = runtime_.region("gradients/" + std::string(name_of(dtype)), size);
  used_ = runtime_.region("gradients/used", parameters_.size());
  // Backward meets the last layer first.
  order_->numbers.resize(parameters_.size());
  std::iota(order_->numbers.rbegin(), order_->numbers.rend(), 0);
  lay_out();
}

void Buckets::lay_out() {
  std::map<Dtype, std::size_t> end;
  std::map<Dtype, std::size_t> open;  // the bucket being filled, per type
  buckets_.clear();
  places_ = std::make_unique<Places>();
  laid_out_ = order_->learned;
  for (auto number : order_->numbers) {
    auto index = static_cast<std::size_t>(number);
    const auto& parameter = parameters_[index];
    auto dtype = dtype_of(parameter);
    auto align = align_of(parameter);
    end[dtype] = net::round_up(end[dtype], align);
    auto at = open.find(dtype);
    if (at == open.end() || end[dtype] - buckets_[at->second].begin >= options_.bucket_bytes) {
      Bucket bucket;
      bucket.name = "gradients/" + std::string(name_of(dtype)) + "/" + std::to_string(order_->learned) + "." +
                    std::to_string(buckets_.size());
      bucket.dtype = dtype;
      bucket.memory = regions_.at(dtype);
      bucket.begin = end[dtype];
      at = open.insert_or_assign(dtype, buckets_.size()).first;
      buckets_.push_back(std::move(bucket));
    }
    auto& bucket = buckets_[at->second];
    auto& slot = slots_[index];
    slot.bucket = at->second;
    slot.offset = end[dtype];
    bind(index);
    end[dtype] += net::round_up(std::max<std::size_t>(bytes_of(parameter), 1), align);
    bucket.members.push_back(index);
    bucket.count = (end[dtype] - bucket.begin) / size_of(dtype);
  }
  // The padding between slots is reduced with the rest: make it harmless.
  for (auto& [dtype, memory] : regions_) std::memset(memory->region->input(), 0, memory->bytes);
  reset();
}

/// Points the slot at its memory.
void Buckets::bind(std::size_t index) {
  auto& slot = slots_[index];
  const auto& parameter = parameters_[index];
  auto& region = *buckets_[slot.bucket].memory->region;
  auto* own = region.input() + slot.offset;
  slot.own = view_at(own, parameter);
  slot.place.reset();
  if (order_->learned && align_of(parameter) == net::kPage) slot.place = places_->add(own, bytes_of(parameter));
  bind_means(index);
}

void Buckets::bind_means(std::size_t index) {
  auto& slot = slots_[index];
  auto& region = *buckets_[slot.bucket].memory->region;
  for (int which : {0, 1}) slot.mean[which] = view_at(region.result(which) + slot.offset, parameters_[index]);
}

void Buckets::rebind() {
  if (laid_out_ != order_->learned) return lay_out();
  for (std::size_t index = 0; index < slots_.size(); ++index) bind_means(index);
}

void Buckets::reset() {
  for (auto& slot : slots_) {
    slot.passes = 0;
    slot.ready = false;
    slot.hidden.reset();
  }
  for (auto& bucket : buckets_) {
    bucket.missing = bucket.members.size();
    bucket.reduction.reset();
  }
  used_reduction_.reset();
}

bool Buckets::is_own(std::size_t index) const {
  const auto& grad = parameters_[index].grad();
  const auto& slot = slots_[index];
  if (!grad.defined() || grad.is_sparse() || grad.strides() != slot.own.strides()) return false;
  return grad.data_ptr() == (slot.place ? places_->address(*slot.place) : slot.own.data_ptr());
}

torch::Tensor Buckets::take(std::size_t index) {
  auto& slot = slots_[index];
  return slot.place ? view_at(places_->take(*slot.place), parameters_[index], &Places::give_back) : slot.own;
}

void Buckets::move_in(std::size_t index) {
  auto& slot = slots_[index];
  auto& grad = parameters_[index].mutable_grad();
  if (is_own(index)) {
    if (slot.place) places_->confirm(*slot.place);
    return;
  }
  if (grad.is_sparse()) throw Failure(Code::invalid, "sparse gradients cannot be reduced");
  auto own = take(index);
  auto bytes = bytes_of(grad);
  if (grad.strides() == own.strides() && grad.is_non_overlapping_and_dense())
    collective::copy(own.data_ptr(), grad.data_ptr(), bytes, bytes >= kStreamFrom);
  else
    own.copy_(grad.detach());
  grad = std::move(own);
}

void Buckets::ready(std::size_t index) {
  auto& slot = slots_[index];
  if (slot.ready)
    throw Failure(Code::invalid, "backward() ran more often before step() than OptimizerOptions::accumulate allows (" +
                                     std::to_string(options_.accumulate) + ")");
  move_in(index);
  if (++slot.passes < options_.accumulate) return;
  slot.ready = true;
  if (!order_->learned) seen_order_.push_back(static_cast<std::int32_t>(index));
  auto& bucket = buckets_[slot.bucket];
  if (--bucket.missing == 0) submit(bucket);
}

void Buckets::submit(Bucket& bucket) {
  // The gradient of `accumulate` passes is their sum: the factor that makes it a mean cancels out of the weights of a
  // weighted mean, so it is applied here, once, if there is one.
  if (options_.accumulate > 1)
    for (auto index : bucket.members) slots_[index].own.div_(options_.accumulate);
  std::shared_ptr<collective::Marks> marks;
  std::vector<std::uint32_t> tensors;
  if (runtime_.variance_due()) {
    marks = std::make_shared<collective::Marks>();
    for (auto index : bucket.members) {
      marks->push_back(slots_[index].offset);
      tensors.push_back(static_cast<std::uint32_t>(index));
    }
  }
  bucket.reduction = runtime_.submit({.name = bucket.name,
                                      .dtype = bucket.dtype,
                                      .op = Op::weighted_mean,
                                      .count = bucket.count,
                                      .memory = bucket.memory,
                                      .offset = bucket.begin,
                                      .weight = runtime_.contribution(),
                                      .measure = runtime_.gradient_measure(),
                                      .with_step = true,
                                      .gradient = true,
                                      .marks = std::move(marks),
                                      .tensors = std::move(tensors)});
  fault::point("between_buckets");
}

void Buckets::submit_rest() {
  auto* used = reinterpret_cast<std::uint8_t*>(used_->region->input());
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto& slot = slots_[index];
    // Without a hook's call there may still be a gradient: of fewer passes than allowed, set by hand, or of a
    // parameter that was frozen when the hooks were made.
    bool has = slot.ready || parameters_[index].grad().defined();
    used[index] = has ? 1 : 0;
    if (slot.ready) continue;
    if (has)
      move_in(index);
    else
      std::memset(take(index).data_ptr(), 0, bytes_of(slot.own));
    slot.ready = true;
    if (!order_->learned) seen_order_.push_back(static_cast<std::int32_t>(index));
    auto& bucket = buckets_[slot.bucket];
    if (--bucket.missing == 0) submit(bucket);
  }
  used_reduction_ = runtime_.submit({.name = "gradients/used",
                                     .dtype = Dtype::u8,
                                     .op = Op::max,
                                     .count = slots_.size(),
                                     .memory = used_,
                                     .caller_waits = true,
                                     .with_step = true});
}

bool Buckets::take_results() {
  squared_norm_ = 0;
  for (auto& bucket : buckets_) squared_norm_ += bucket.reduction->measured().squares;
  const auto* used = static_cast<const std::uint8_t*>(used_reduction_->result());
  for (std::size_t index = 0; index < slots_.size(); ++index) slots_[index].used_by_anyone = used[index] != 0;
  return std::isfinite(squared_norm_);
}

torch::Tensor& Buckets::mean_of(std::size_t index) {
  auto& slot = slots_[index];
  auto& bucket = buckets_[slot.bucket];
  const auto* result = static_cast<const std::byte*>(bucket.reduction->result());
  auto& region = *bucket.memory->region;
  for (int which : {0, 1})
    if (result == region.result(which) + bucket.begin) return slot.mean[which];
  // The step was settled after its view had ended: its results are where they were.
  auto* at = const_cast<std::byte*>(result) + (slot.offset - bucket.begin);
  slot.old_mean = view_at(at, parameters_[index]);
  return slot.old_mean;
}

void Buckets::show_mean() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto& grad = parameters_[index].mutable_grad();
    slots_[index].hidden = std::move(grad);
    if (slots_[index].used_by_anyone)
      grad = mean_of(index);
    else
      grad.reset();
  }
}

void Buckets::copy_mean(double factor) {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto& grad = parameters_[index].mutable_grad();
    slots_[index].hidden = std::move(grad);
    if (slots_[index].used_by_anyone)
      grad = mean_of(index) * factor;
    else
      grad.reset();
  }
}

void Buckets::show_own() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto& slot = slots_[index];
    auto& grad = parameters_[index].mutable_grad();
    if (grad.defined()) grad = slot.hidden.defined() ? std::move(slot.hidden) : take(index);
  }
}

void Buckets::learn_order() {
  if (order_->learned) return;
  auto order = std::exchange(seen_order_, {});
  order.resize(slots_.size());
  runtime_.wait_here(runtime_.submit({.name = "gradients/order",
                                      .dtype = Dtype::i32,
                                      .op = Op::sum,
                                      .count = order.size(),
                                      .in = order.data(),
                                      .out = order.data(),
                                      .weight = runtime_.rank() == 0 ? 1.0 : 0.0,
                                      .caller_waits = true}));
  // If rank 0 has just died, nobody told: all keep the order they have.
  bool told = std::set<std::int32_t>(order.begin(), order.end()).size() == order.size();
  if (told) std::ranges::copy(order, order_->numbers.begin());  // in place: digests look at this memory
  order_->learned = 1;
  lay_out();
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

class Buckets::SequenceState final : public State {
 public:
  explicit SequenceState(std::shared_ptr<Sequence> order) : order_(std::move(order)) {}
  std::vector<StateItem> items() override {
    return {{"order", Dtype::i32, order_->numbers.data(), order_->numbers.size(), Role::other, order_, {}},
            {"learned", Dtype::i32, &order_->learned, 1, Role::other, order_, {}}};
  }

 private:
  std::shared_ptr<Sequence> order_;
};

StatePtr Buckets::order_state() const { return std::make_shared<SequenceState>(order_); }

}  // namespace pliant::adapter
