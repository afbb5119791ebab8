#include "millrace/device/cuda/cuda_device.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

uint64_t RandomIncarnation() {
  std::random_device entropy;
  return (static_cast<uint64_t>(entropy()) << 32 | entropy()) | 1;
}

}  // namespace

CudaDevice::CudaDevice(std::string name, Gpu* gpu, std::shared_ptr<ThreadPool> host_threads)
    : Device(std::move(name), "GPU", RandomIncarnation()),
      gpu_(gpu),
      stream_(gpu),
      host_threads_(std::move(host_threads)) {}

Device::MemoryUse CudaDevice::memory_use() const {
  MemoryUse use;
  size_t free = 0, total = 0;
  use.limit = gpu_->memory_limit();
  if (use.limit == 0 && gpu_->Use().ok() && cudaMemGetInfo(&free, &total) == cudaSuccess)
    use.limit = static_cast<int64_t>(total);
  use.in_use = static_cast<int64_t>(gpu_->allocator()->bytes_in_use());
  return use;
}

void CudaDevice::CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) {
  StatusOr<Tensor> copy = gpu_->CopyIn(host);
  if (copy.ok()) *here = *std::move(copy);
  done(copy.status());
}

void CudaDevice::CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) {
  gpu_->CopyOut(here, [host, done = std::move(done)](StatusOr<Tensor> copy) mutable {
    const Status status = copy.status();
    if (copy.ok()) *host = *std::move(copy);
    done(status);
  });
}

}  // namespace millrace
