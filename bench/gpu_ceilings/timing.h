// Times of device work by events, on a stream that is captured so that launching costs nothing.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace gpu_ceilings {

inline void Check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

// Microseconds of one call of `enqueue`, the median of several replays of a graph with 20 of them.
double MicrosecondsOf(cudaStream_t stream, const std::function<void()>& enqueue);

// Device memory filled with small random bfloat16 numbers: zeros run faster than data. Freed with the process.
void* RandomMemory(size_t bytes);

}  // namespace gpu_ceilings
