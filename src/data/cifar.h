// CIFAR-10's binary files.
#pragma once

#include <span>
#include <string>

#include "data/idx.h"

namespace pliant::data {

/// Records of one label byte (0–9) and 3×32×32 pixel bytes. The size must be a whole number of records, at least one.
Result<LabelledImages> decode_cifar10(std::span<const std::uint8_t> bytes);
/// DIR/data_batch_{1..5}.bin or DIR/test_batch.bin, in DIR itself or in DIR/cifar-10-batches-bin, each with or
/// without ".gz".
Result<LabelledImages> read_cifar10(const std::string& folder, bool train);

}  // namespace pliant::data
