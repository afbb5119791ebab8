#include "millrace/device/cuda/gpu_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/copy_box_kernel.h"
#include "millrace/device/memory_holders.h"

namespace millrace {

int GpuBuffer::ordinal() const { return allocator_->ordinal(); }

Allocator* GpuBuffer::allocator() const { return allocator_; }

Status GpuBuffer::Prepare(const DeviceBuffer* from) const {
  MR_RETURN_IF_CUDA_ERROR(allocator_->device(), cudaSetDevice(allocator_->ordinal()));
  if (from != nullptr) MR_RETURN_IF_ERROR(static_cast<const GpuBuffer*>(from)->AwaitOnCompute());
  return AwaitOnCompute();
}

Status GpuBuffer::CopyFrom(const DeviceBuffer& from, size_t bytes) {
  MR_RETURN_IF_ERROR(Prepare(&from));
  MR_RETURN_IF_CUDA_ERROR(allocator_->device(),
                          cudaMemcpyAsync(data_, from.data(), bytes, cudaMemcpyDeviceToDevice, allocator_->compute()));
  return absl::OkStatus();
}

Status GpuBuffer::CopyBoxFrom(const DeviceBuffer* from, const void* first, void* to, size_t size, const CopyBox& box) {
  if (from == nullptr) return Internal("a tensor in host memory is copied within that of ", allocator_->device());
  MR_RETURN_IF_ERROR(Prepare(from));
  const auto& dims = box.dims;
  if (dims.empty() || (dims.size() == 1 && dims[0].from == 1 && dims[0].to == 1)) {
    const size_t bytes = size * (dims.empty() ? 1 : static_cast<size_t>(dims[0].size));
    MR_RETURN_IF_CUDA_ERROR(allocator_->device(),
                            cudaMemcpyAsync(to, first, bytes, cudaMemcpyDeviceToDevice, allocator_->compute()));
    return absl::OkStatus();
  }
  if (dims.size() > cuda::BoxOnDevice::kMostDims)
    return Unimplemented("a GPU copies boxes of at most ", cuda::BoxOnDevice::kMostDims, " dimensions, not of ",
                         dims.size());
  cuda::BoxOnDevice there;
  there.rank = static_cast<int>(dims.size());
  for (int d = 0; d < there.rank; ++d) {
    there.size[d] = dims[d].size;
    there.from[d] = dims[d].from;
    there.to[d] = dims[d].to;
    there.num_elements *= dims[d].size;
  }
  MR_RETURN_IF_CUDA_ERROR(allocator_->device(), cuda::LaunchCopyBox(there, first, to, size, allocator_->compute()));
  return absl::OkStatus();
}

Status GpuBuffer::Clear(void* at, size_t bytes) {
  MR_RETURN_IF_ERROR(Prepare(nullptr));
  MR_RETURN_IF_CUDA_ERROR(allocator_->device(), cudaMemsetAsync(at, 0, bytes, allocator_->compute()));
  return absl::OkStatus();
}

void GpuBuffer::FilledBy(std::shared_ptr<const CudaEvent> event) {
  filled_ = std::move(event);
  awaited_.store(false, std::memory_order_release);
}

Status GpuBuffer::AwaitOn(cudaStream_t stream) const {
  if (awaited_.load(std::memory_order_acquire)) return absl::OkStatus();
  MR_RETURN_IF_CUDA_ERROR(allocator_->device(), cudaStreamWaitEvent(stream, filled_->get()));
  return absl::OkStatus();
}

Status GpuBuffer::AwaitOnCompute() const {
  MR_RETURN_IF_ERROR(AwaitOn(allocator_->compute()));
  awaited_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

void GpuBuffer::Destroy() {
  MemoryHolders::Global().Remove(data_, size_);  // before another block can have its address
  // Errors here mean that the device is broken or the process is ending; the memory is gone either way.
  cudaSetDevice(allocator_->ordinal());
  AwaitOnCompute().IgnoreError();
  if (cudaFreeAsync(data_, allocator_->compute()) != cudaSuccess) cudaGetLastError();
  allocator_->OnFreed(size_);
  delete this;
}

const GpuBuffer* GpuBufferOf(const Tensor& tensor) {
  return tensor.buffer() ? dynamic_cast<const GpuBuffer*>(tensor.buffer()->root()) : nullptr;
}

Status GpuAllocator::Init() {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = ordinal_;
  MR_RETURN_IF_CUDA_ERROR(device_, cudaMemPoolCreate(pool_.out(), &props));
  // Retain freed memory for the next step instead of returning it at every synchronisation.
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  MR_RETURN_IF_CUDA_ERROR(device_, cudaMemPoolSetAttribute(pool_.get(), cudaMemPoolAttrReleaseThreshold, &keep));
  return absl::OkStatus();
}

RefPtr<GpuBuffer> GpuAllocator::AllocateOn(cudaStream_t stream, size_t bytes) {
  if (!budget_->Charge(bytes)) return nullptr;
  cudaSetDevice(ordinal_);
  const size_t size = std::max<size_t>(bytes, 1);
  void* data = nullptr;
  cudaError_t code = cudaMallocFromPoolAsync(&data, size, pool_.get(), stream);
  if (code == cudaErrorMemoryAllocation) {
    // Freed memory may still be in use by work in flight, or fragmented in the pool. Wait for the device and retry
    // before failing.
    cudaGetLastError();
    cudaStreamSynchronize(compute_);
    cudaMemPoolTrimTo(pool_.get(), 0);
    code = cudaMallocFromPoolAsync(&data, size, pool_.get(), stream);
  }
  if (code != cudaSuccess) {
    cudaGetLastError();
    budget_->Release(bytes);
    return nullptr;
  }
  MemoryHolders::Global().Add(this, data, bytes);
  return AdoptRef(new GpuBuffer(this, data, bytes));
}

RefPtr<Buffer> GpuAllocator::Allocate(size_t bytes) { return AllocateOn(compute_, bytes); }

std::string GpuAllocator::Shortage(size_t bytes) const {
  if (std::string shortage = DeviceShortage(*budget_, this, bytes); !shortage.empty()) return shortage;
  size_t free = 0, total = 0;
  if (cudaSetDevice(ordinal_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return absl::StrCat("; ", device_, " has ", total, " bytes, of which this process uses ", bytes_in_use(), ", and ",
                      free, " are free", MemoryHolders::Global().Largest(this));
}

}  // namespace millrace
