// Data sets on disk, without any framework.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pliant {

struct LabelledImages {
  std::uint32_t count = 0, channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< count × channels × height × width
  std::vector<std::uint8_t> labels;  ///< count
};

/// MNIST and Fashion-MNIST: FOLDER/{train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without ".gz".
/// Failure names the file and what is wrong with it.
LabelledImages load_mnist(const std::string& folder, bool train);
/// CIFAR-10's binary version: data_batch_{1..5}.bin or test_batch.bin, in FOLDER or in FOLDER/cifar-10-batches-bin.
LabelledImages load_cifar10(const std::string& folder, bool train);

}  // namespace pliant
