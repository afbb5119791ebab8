#include "millrace/device/cuda/copy_box_kernel.h"

namespace millrace::cuda {
namespace {

// Index is 32 bits wide where the box allows it: divisions of 64 bits take four times as long.
template <typename T, typename Index>
__global__ void CopyBox(BoxOnDevice box, const T* from, T* to) {
  const Index n = static_cast<Index>(box.num_elements), stride = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    Index rest = i;
    int64_t source = 0, target = 0;
    for (int d = box.rank - 1; d > 0; --d) {
      const Index size = static_cast<Index>(box.size[d]), next = rest / size, here = rest - next * size;
      source += static_cast<int64_t>(here) * box.from[d];
      target += static_cast<int64_t>(here) * box.to[d];
      rest = next;
    }
    to[target + static_cast<int64_t>(rest) * box.to[0]] = from[source + static_cast<int64_t>(rest) * box.from[0]];
  }
}

template <typename T>
cudaError_t Launch(const BoxOnDevice& box, const void* from, void* to, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 132 * 16;  // each thread goes on to further elements
  const int64_t wanted = (box.num_elements + kThreads - 1) / kThreads;
  const unsigned blocks = static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
  // The last i + stride of a thread must fit as well.
  if (box.num_elements < (int64_t{1} << 31)) {
    CopyBox<T, uint32_t><<<blocks, kThreads, 0, stream>>>(box, static_cast<const T*>(from), static_cast<T*>(to));
  } else {
    CopyBox<T, uint64_t><<<blocks, kThreads, 0, stream>>>(box, static_cast<const T*>(from), static_cast<T*>(to));
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchCopyBox(const BoxOnDevice& box, const void* from, void* to, size_t size, cudaStream_t stream) {
  switch (size) {
    case 1:
      return Launch<uint8_t>(box, from, to, stream);
    case 2:
      return Launch<uint16_t>(box, from, to, stream);
    case 4:
      return Launch<uint32_t>(box, from, to, stream);
    case 8:
      return Launch<uint64_t>(box, from, to, stream);
    case 16:
      return Launch<ulonglong2>(box, from, to, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace millrace::cuda
