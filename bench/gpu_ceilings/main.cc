// What NVIDIA's libraries reach on this card; see README.md beside this file.
#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "tables.h"
#include "timing.h"

namespace {

void PrintCard() {
  cudaDeviceProp card;
  gpu_ceilings::Check(cudaGetDeviceProperties(&card, 0), "cudaGetDeviceProperties");
  std::printf("%s: compute capability %d.%d, %d multiprocessors, %.0f GB, L2 %d MB, cuDNN %zu\n\n", card.name,
              card.major, card.minor, card.multiProcessorCount, card.totalGlobalMem / 1e9, card.l2CacheSize >> 20,
              cudnnGetVersion());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::strcmp(argv[1], "--plans") == 0) return gpu_ceilings::PrintPlans(argv[2]) == 0 ? 0 : 1;
    if (argc == 3 && std::strcmp(argv[1], "--properties") == 0) {
      gpu_ceilings::WriteProperties(argv[2]);
      return 0;
    }
    if (argc == 3 && std::strcmp(argv[1], "--convolutions") == 0) {
      gpu_ceilings::PrintConvolutions(argv[2]);
      return 0;
    }
    if (argc != 1) {
      std::fprintf(stderr, "Usage: gpu_ceilings [--properties FILE | --plans FILE | --convolutions NAME]\n");
      return 2;
    }
    PrintCard();
    gpu_ceilings::PrintLaunches();
    gpu_ceilings::PrintProducts();
    gpu_ceilings::PrintConvolutions("");
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "gpu_ceilings: %s\n", error.what());
    return 1;
  }
}
