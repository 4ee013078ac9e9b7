// Modules and optimizers as shared state.
#include <pliant/torch.h>

#include <set>

#include "torch/buckets.h"

namespace pliant {
namespace {

StateItem item_of(std::string name, const torch::Tensor& tensor, Role role) {
  if (!tensor.is_non_overlapping_and_dense())
    throw Failure(Code::invalid, "'" + name + "' has holes or overlaps in memory and cannot be shared");
  return {std::move(name),
          adapter::dtype_of(tensor),
          tensor.data_ptr(),
          static_cast<std::size_t>(tensor.numel()),
          role,
          std::make_shared<torch::Tensor>(tensor),
          {tensor.sizes().begin(), tensor.sizes().end()}};
}

class ModuleState final : public State {
 public:
  explicit ModuleState(torch::nn::Module& module) : module_(module) {}
  std::vector<StateItem> items() override {
    std::vector<StateItem> items;
    for (const auto& entry : module_.named_parameters())
      items.push_back(item_of(entry.key(), entry.value(), Role::parameter));
    for (const auto& entry : module_.named_buffers()) {
      bool floating = entry.value().is_floating_point();
      items.push_back(item_of(entry.key(), entry.value(), floating ? Role::average : Role::counter));
    }
    std::erase_if(items, [](const auto& item) { return item.count == 0; });
    return items;
  }

 private:
  torch::nn::Module& module_;
};

class OptimizerState final : public State {
 public:
  explicit OptimizerState(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  std::vector<StateItem> items() override {
    std::vector<StateItem> items;
    std::size_t number = 0, groups = 0;
    for (auto& group : optimizer_.param_groups()) {
      if (auto* rate = rate_of(group.options()))
        items.push_back({"group" + std::to_string(groups) + ".lr", Dtype::f64, rate, 1, Role::other, nullptr, {}});
      ++groups;
      for (auto& parameter : group.params()) {
        auto at = optimizer_.state().find(key_of(parameter));
        if (at != optimizer_.state().end()) add(items, std::to_string(number), *at->second);
        ++number;
      }
    }
    return items;
  }

  /// Makes the state that the optimizer would have made in its first step, as far as `like` names it.
  void prepare(const std::vector<StateItem>& like) override {
    std::set<std::string> names;
    for (const auto& item : like) names.insert(item.name);
    auto has = [&](std::size_t number, const char* what) { return names.contains(std::to_string(number) + what); };
    std::size_t number = 0;
    for (auto& group : optimizer_.param_groups())
      for (auto& parameter : group.params()) {
        auto made = make(parameter, [&](const char* what) { return has(number, what); });
        if (made) optimizer_.state()[key_of(parameter)] = std::move(made);
        ++number;
      }
  }

 private:
  using Made = std::unique_ptr<torch::optim::OptimizerParamState>;

  /// The learning rate, in place; nullptr for optimizers that are not known here.
  static double* rate_of(torch::optim::OptimizerOptions& options) {
    if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return &sgd->lr();
    if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) return &adam->lr();
    if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) return &adamw->lr();
    if (auto* rms = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) return &rms->lr();
    if (auto* ada = dynamic_cast<torch::optim::AdagradOptions*>(&options)) return &ada->lr();
    return nullptr;
  }

  template <class Has>
  Made make(const torch::Tensor& parameter, const Has& has) const {
    auto zeros = [&] { return torch::zeros_like(parameter, torch::MemoryFormat::Preserve).detach(); };
    if (dynamic_cast<torch::optim::SGD*>(&optimizer_) && has(".momentum")) {
      auto made = std::make_unique<torch::optim::SGDParamState>();
      made->momentum_buffer(zeros());
      return made;
    }
    if (dynamic_cast<torch::optim::Adam*>(&optimizer_) && has(".exp_avg"))
      return make_moments<torch::optim::AdamParamState>(zeros, has);
    if (dynamic_cast<torch::optim::AdamW*>(&optimizer_) && has(".exp_avg"))
      return make_moments<torch::optim::AdamWParamState>(zeros, has);
    if (dynamic_cast<torch::optim::RMSprop*>(&optimizer_) && has(".square_avg")) {
      auto made = std::make_unique<torch::optim::RMSpropParamState>();
      made->square_avg(zeros());
      if (has(".momentum")) made->momentum_buffer(zeros());
      if (has(".grad_avg")) made->grad_avg(zeros());
      return made;
    }
    return nullptr;  // Adagrad has its state from the beginning
  }

  template <class Moments, class Zeros, class Has>
  static Made make_moments(const Zeros& zeros, const Has& has) {
    auto made = std::make_unique<Moments>();
    made->exp_avg(zeros());
    made->exp_avg_sq(zeros());
    if (has(".max_exp_avg_sq")) made->max_exp_avg_sq(zeros());
    return made;
  }

  using Table = std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

  /// LibTorch 1.x keys the table by the address as text, 2.x by the address.
  template <class Tensor, class Key = typename Table::key_type>
  static Key key_of(const Tensor& parameter) {
    using namespace c10::guts;  // where 1.x has its to_string; found only if it is there
    if constexpr (std::is_same_v<Key, std::string>)
      return to_string(parameter.unsafeGetTensorImpl());
    else
      return parameter.unsafeGetTensorImpl();
  }

  static void add_tensor(std::vector<StateItem>& items, const std::string& name, const torch::Tensor& tensor) {
    if (tensor.defined() && tensor.numel() > 0) items.push_back(item_of(name, tensor, Role::other));
  }
  static void add_counter(std::vector<StateItem>& items, const std::string& name, std::int64_t& counter) {
    items.push_back({name, Dtype::i64, &counter, 1, Role::other, nullptr, {}});
  }

  template <class Moments>
  static bool add_moments(std::vector<StateItem>& items, const std::string& name,
                          torch::optim::OptimizerParamState& state) {
    auto* moments = dynamic_cast<Moments*>(&state);
    if (!moments) return false;
    add_counter(items, name + ".step", moments->step());
    add_tensor(items, name + ".exp_avg", moments->exp_avg());
    add_tensor(items, name + ".exp_avg_sq", moments->exp_avg_sq());
    add_tensor(items, name + ".max_exp_avg_sq", moments->max_exp_avg_sq());
    return true;
  }

  static void add(std::vector<StateItem>& items, const std::string& name, torch::optim::OptimizerParamState& state) {
    if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&state))
      return add_tensor(items, name + ".momentum", sgd->momentum_buffer());
    if (add_moments<torch::optim::AdamParamState>(items, name, state)) return;
    if (add_moments<torch::optim::AdamWParamState>(items, name, state)) return;
    if (auto* rms = dynamic_cast<torch::optim::RMSpropParamState*>(&state)) {
      add_counter(items, name + ".step", rms->step());
      add_tensor(items, name + ".square_avg", rms->square_avg());
      add_tensor(items, name + ".momentum", rms->momentum_buffer());
      return add_tensor(items, name + ".grad_avg", rms->grad_avg());
    }
    if (auto* ada = dynamic_cast<torch::optim::AdagradParamState*>(&state)) {
      add_counter(items, name + ".step", ada->step());
      return add_tensor(items, name + ".sum", ada->sum());
    }
    throw Failure(Code::invalid, "this optimizer's state is of an unknown kind: derive a pliant::State for it");
  }

  torch::optim::Optimizer& optimizer_;
};

}  // namespace

StatePtr state_of(torch::nn::Module& module) { return std::make_shared<ModuleState>(module); }
StatePtr state_of(torch::optim::Optimizer& optimizer) { return std::make_shared<OptimizerState>(optimizer); }

}  // namespace pliant
