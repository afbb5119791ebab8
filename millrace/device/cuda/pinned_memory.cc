#include "millrace/device/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

class PinnedAllocator::PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(PinnedAllocator* allocator, int size_class, void* data)
      : Buffer(data, size_t{1} << (size_class + kFirstClass)), allocator_(allocator), class_(size_class) {}
  ~PinnedBuffer() override { cudaFreeHost(data_); }

  void Lend(size_t bytes) {
    size_ = bytes;
    ResetRefs();
  }
  int size_class() const { return class_; }
  size_t capacity() const { return size_t{1} << (class_ + kFirstClass); }

 private:
  void Destroy() override { allocator_->Return(this); }

  PinnedAllocator* const allocator_;
  const int class_;
};

PinnedAllocator::PinnedAllocator(int ordinal)
    : ordinal_(ordinal), name_(absl::StrCat("pinned host memory of GPU:", ordinal)) {}

RefPtr<Buffer> PinnedAllocator::Allocate(size_t bytes) {
  int size_class = 0;
  while (size_class < kNumClasses && (size_t{1} << (size_class + kFirstClass)) < bytes) ++size_class;
  if (size_class == kNumClasses) return nullptr;
  {
    MutexLock lock(&mu_);
    auto& list = free_[size_class];
    if (!list.empty()) {
      PinnedBuffer* buffer = list.back();
      list.pop_back();
      kept_ -= buffer->capacity();
      buffer->Lend(bytes);
      return AdoptRef<Buffer>(buffer);
    }
  }
  cudaSetDevice(ordinal_);
  void* data = nullptr;
  if (cudaHostAlloc(&data, size_t{1} << (size_class + kFirstClass), cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  auto* buffer = new PinnedBuffer(this, size_class, data);
  buffer->Lend(bytes);
  return AdoptRef<Buffer>(buffer);
}

void PinnedAllocator::Return(PinnedBuffer* buffer) {
  {
    MutexLock lock(&mu_);
    if (kept_ + buffer->capacity() <= kMaxKept) {
      kept_ += buffer->capacity();
      free_[buffer->size_class()].push_back(buffer);
      return;
    }
  }
  delete buffer;
}

bool PinnedAllocator::Owns(const Buffer& buffer) { return dynamic_cast<const PinnedBuffer*>(buffer.root()) != nullptr; }

}  // namespace millrace
