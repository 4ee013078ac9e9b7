// Times all-reduce with real processes, under the rules of docs/measuring.md: on this host, or between several, as far
// as processes in network namespaces can tell.
#pragma once

#include <pliant/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/control.h"

namespace pliant::cli {

struct AllReduceCase {
  int ranks = 2;
  std::vector<std::size_t> tensors;  ///< bytes of each, submitted one by one; usually just one
  Dtype dtype = Dtype::f32;
  collective::Memory memory = collective::Memory::registered;
  int iterations = 0;      ///< 0: by size
  std::size_t rotate = 0;  ///< bytes of buffers per host to walk through; 0: by size
  int load = 0;            ///< strangers that keep a core busy meanwhile
  int hosts = 1;           ///< ranks are spread over so many in equal blocks; they meet on loopback, or …
  std::vector<std::string> namespaces;  ///< … in network namespaces (ip netns), one for each host
  bool trusted_network = false;         ///< between hosts data is not encrypted

  std::size_t bytes() const;
};

struct Timing {
  double min_ms = 0, p50_ms = 0, p99_ms = 0;
};

struct AllReduceTiming {
  Timing ours;
  Timing limit;  ///< a bare loop over the same amount of shared memory, with no protocol around it; of one host only
  bool verified = false;
};

/// Runs one case. A repetition's time is the maximum over ranks from a common start until the result is readable.
Result<AllReduceTiming> time_allreduce(const AllReduceCase& what);

/// The 214 trainable tensors of a ResNet-50 whose convolutions have biases, in bytes of fp32, first layer first.
std::vector<std::size_t> resnet50_tensors();

}  // namespace pliant::cli
