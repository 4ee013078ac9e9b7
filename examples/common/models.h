// The examples' models for 28×28 grey images.
#pragma once

#include <torch/torch.h>

#include <string>

/// "mlp": two linear layers (0.1 M parameters).
/// "cnn": two convolutions and two linear layers (0.4 M parameters).
/// "resnet": three stages of two basic blocks with 16, 32 and 64 channels (0.2 M parameters), with BatchNorm.
torch::nn::AnyModule make_model(const std::string& name);
