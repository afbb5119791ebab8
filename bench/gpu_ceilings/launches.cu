#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "tables.h"
#include "timing.h"

namespace gpu_ceilings {
namespace {

__global__ void Nothing() {}

__global__ void FillWithNoise(unsigned short* at, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    unsigned x = static_cast<unsigned>(i) * 2654435761u;
    x ^= x >> 15;
    // bfloat16 of either sign between 1/8 and 1/4
    at[i] = static_cast<unsigned short>(0x3e00 | (x & 0x807f));
  }
}

double MicrosecondsSince(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count();
}

template <typename Fn>
double MedianMicroseconds(int times, const Fn& fn) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto began = std::chrono::steady_clock::now();
    fn();
    all.push_back(MicrosecondsSince(began));
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[times / 2];
}

cudaGraphExec_t GraphOfKernels(cudaStream_t stream, int kernels) {
  cudaGraph_t graph;
  cudaGraphExec_t runnable;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < kernels; ++i) Nothing<<<1, 32, 0, stream>>>();
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
  return runnable;
}

}  // namespace

double MicrosecondsOf(cudaStream_t stream, const std::function<void()>& enqueue) {
  constexpr int kCalls = 20, kReplays = 7;
  enqueue();
  Check(cudaStreamSynchronize(stream), "first run");
  cudaGraph_t graph;
  cudaGraphExec_t runnable;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < kCalls; ++i) enqueue();
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> all;
  for (int i = 0; i < kReplays; ++i) {
    Check(cudaEventRecord(begin, stream), "cudaEventRecord");
    Check(cudaGraphLaunch(runnable, stream), "cudaGraphLaunch");
    Check(cudaEventRecord(end, stream), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    all.push_back(milliseconds);
  }
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(all.begin(), all.begin() + kReplays / 2, all.end());
  return all[kReplays / 2] * 1000 / kCalls;
}

void* RandomMemory(size_t bytes) {
  void* memory;
  Check(cudaMalloc(&memory, bytes), "cudaMalloc");
  FillWithNoise<<<1024, 256>>>(static_cast<unsigned short*>(memory), bytes / 2);
  Check(cudaDeviceSynchronize(), "FillWithNoise");
  return memory;
}

void PrintLaunches() {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "cudaStreamCreate");
  Nothing<<<1, 32, 0, stream>>>();
  Check(cudaStreamSynchronize(stream), "first kernel");
  std::printf("## Launches\n\n| what | us |\n|---|---|\n");
  std::printf("| launching an empty kernel, host's time | %.2f |\n", MedianMicroseconds(20, [&] {
                                                                       for (int i = 0; i < 500; ++i)
                                                                         Nothing<<<1, 32, 0, stream>>>();
                                                                     }) / 500);
  Check(cudaStreamSynchronize(stream), "kernels");
  std::printf("| an empty kernel and waiting for it | %.2f |\n", MedianMicroseconds(500, [&] {
                Nothing<<<1, 32, 0, stream>>>();
                cudaStreamSynchronize(stream);
              }));
  std::printf("| an empty kernel after another on a stream | %.2f |\n", MedianMicroseconds(20, [&] {
                                                                          for (int i = 0; i < 500; ++i)
                                                                            Nothing<<<1, 32, 0, stream>>>();
                                                                          cudaStreamSynchronize(stream);
                                                                        }) / 500);
  for (const int kernels : {1, 20, 100, 1000}) {
    const cudaGraphExec_t graph = GraphOfKernels(stream, kernels);
    Check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    Check(cudaStreamSynchronize(stream), "graph");
    const double launch = MedianMicroseconds(200, [&] { cudaGraphLaunch(graph, stream); });
    Check(cudaStreamSynchronize(stream), "graphs");
    const double whole = MedianMicroseconds(200, [&] {
      cudaGraphLaunch(graph, stream);
      cudaStreamSynchronize(stream);
    });
    std::printf("| launching a graph of %d empty kernels, host's time | %.2f |\n", kernels, launch);
    std::printf("| the same and waiting for it | %.2f (%.2f a kernel) |\n", whole, whole / kernels);
    cudaGraphExecDestroy(graph);
  }
  std::printf("\n");
}

}  // namespace gpu_ceilings
