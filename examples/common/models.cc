#include "models.h"

#include <stdexcept>

namespace {

namespace nn = torch::nn;

struct MlpImpl : nn::Module {
  nn::Linear hidden{nullptr}, out{nullptr};

  MlpImpl() {
    hidden = register_module("hidden", nn::Linear(784, 128));
    out = register_module("out", nn::Linear(128, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x.flatten(1)))); }
};
TORCH_MODULE(Mlp);

struct CnnImpl : nn::Module {
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::Linear hidden{nullptr}, out{nullptr};

  CnnImpl() {
    first = register_module("first", nn::Conv2d(nn::Conv2dOptions(1, 32, 3).padding(1)));
    second = register_module("second", nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)));
    hidden = register_module("hidden", nn::Linear(64 * 7 * 7, 128));
    out = register_module("out", nn::Linear(128, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(first(x)), 2);
    x = torch::max_pool2d(torch::relu(second(x)), 2);
    return out(torch::relu(hidden(x.flatten(1))));
  }
};
TORCH_MODULE(Cnn);

nn::Conv2d conv(int in, int out, int kernel, int stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BlockImpl : nn::Module {
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::BatchNorm2d first_norm{nullptr}, second_norm{nullptr};
  nn::Sequential shortcut;

  BlockImpl(int in, int out, int stride) {
    first = register_module("first", conv(in, out, 3, stride));
    first_norm = register_module("first_norm", nn::BatchNorm2d(out));
    second = register_module("second", conv(out, out, 3, 1));
    second_norm = register_module("second_norm", nn::BatchNorm2d(out));
    if (in != out || stride != 1)
      shortcut = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto around = shortcut.is_empty() || shortcut->is_empty() ? x : shortcut->forward(x);
    x = torch::relu(first_norm(first(x)));
    return torch::relu(second_norm(second(x)) + around);
  }
};
TORCH_MODULE(Block);

struct ResNetImpl : nn::Module {
  nn::Conv2d stem{nullptr};
  nn::BatchNorm2d stem_norm{nullptr};
  nn::Sequential blocks;
  nn::Linear out{nullptr};

  ResNetImpl() {
    stem = register_module("stem", conv(1, 16, 3, 1));
    stem_norm = register_module("stem_norm", nn::BatchNorm2d(16));
    int in = 16;
    for (int width : {16, 32, 64}) {
      blocks->push_back(Block(in, width, width == 16 ? 1 : 2));
      blocks->push_back(Block(width, width, 1));
      in = width;
    }
    blocks = register_module("blocks", blocks);
    out = register_module("out", nn::Linear(64, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = blocks->forward(torch::relu(stem_norm(stem(x))));
    return out(x.mean({2, 3}));
  }
};
TORCH_MODULE(ResNet);

}  // namespace

nn::AnyModule make_model(const std::string& name) {
  if (name == "cnn") return nn::AnyModule(Cnn());
  if (name == "mlp") return nn::AnyModule(Mlp());
  if (name == "resnet") return nn::AnyModule(ResNet());
  throw std::invalid_argument("unknown model '" + name + "': mlp, cnn or resnet");
}
