// Readers for data sets on disk. No LibTorch here: plain bytes, checked before anything is allocated.
#pragma once

#include <pliant/data.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::data {

/// An IDX array of unsigned bytes (MNIST, Fashion-MNIST): dimensions, then values in row-major order.
struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> values;
};

/// Decodes IDX bytes. Only type 0x08 (unsigned byte), one to four dimensions. The size that the header announces must
/// be exactly the size that is there.
Result<IdxArray> decode_idx(std::span<const std::uint8_t> bytes);
/// Reads a file, gzipped or not (told by its first bytes, not by its name). Errors name the file.
Result<IdxArray> read_idx(const std::string& path);

/// MNIST and Fashion-MNIST: DIR/{train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without ".gz".
Result<LabelledImages> read_mnist(const std::string& folder, bool train);

}  // namespace pliant::data
