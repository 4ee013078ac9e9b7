// libFuzzer's two doors. PLIANT_FUZZ_SEEDS names the corpus folder that receives the seeds before it is read.
#include <fstream>
#include <string>

#include "base/system.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  auto folder = pliant::env("PLIANT_FUZZ_SEEDS");
  if (!folder) return 0;
  int number = 0;
  for (const auto& seed : pliant::fuzz::seeds())
    std::ofstream(*folder + "/seed-" + std::to_string(number++), std::ios::binary)
        .write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pliant::fuzz::run({data, size});
  return 0;
}
