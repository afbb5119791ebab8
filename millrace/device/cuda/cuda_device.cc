#include "millrace/device/cuda/cuda_device.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/cuda_devices.h"

namespace millrace {
namespace {

uint64_t RandomIncarnation() {
  std::random_device entropy;
  return (static_cast<uint64_t>(entropy()) << 32 | entropy()) | 1;
}

}  // namespace

CudaDevice::CudaDevice(std::string name, Gpu* gpu)
    : Device(std::move(name), "GPU", RandomIncarnation()), gpu_(gpu), stream_(gpu) {}

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

int CudaDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no GPU
  return 0;
}

StatusOr<std::vector<std::unique_ptr<Device>>> NewCudaDevices(const CudaDeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  if (options.count == 0) return devices;
  int count = CudaDeviceCount();
  if (options.count > 0) count = std::min(count, options.count);
  for (int i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(Gpu * gpu, Gpu::Get(i));
    devices.push_back(std::make_unique<CudaDevice>(absl::StrCat(options.task, "/device:GPU:", i), gpu));
  }
  return devices;
}

}  // namespace millrace
