#include "millrace/tensor/buffer.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#include "millrace/base/huge_pages.h"
#include "millrace/tensor/memory_budget.h"
#include "millrace/tensor/memory_limit.h"

namespace millrace {
namespace {

// Header and contents share one malloc block: aligned_alloc lacks malloc's fast path.
class HeapBuffer final : public Buffer {
 public:
  static HeapBuffer* New(size_t bytes) {
    constexpr size_t kSmall = 1 << 16;  // too small to check against the limit
    constexpr size_t kOverhead = sizeof(HeapBuffer) + kAlignment - 1;
    if (bytes > kSmall && bytes > MaxAllocation()) return nullptr;
    if (bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()) - kOverhead) return nullptr;
    if (!ChargeHeap(bytes)) return nullptr;
    void* block = std::malloc(bytes + kOverhead);
    if (block == nullptr) {
      ReleaseHeap(bytes);
      return nullptr;
    }
    AdviseHugePages(block, bytes);
    const uintptr_t after = reinterpret_cast<uintptr_t>(block) + kOverhead;
    return new (block) HeapBuffer(reinterpret_cast<void*>(after & ~(kAlignment - 1)), bytes);
  }

 private:
  HeapBuffer(void* data, size_t size) : Buffer(data, size) {}
  void Destroy() override {
    ReleaseHeap(size_);
    this->~HeapBuffer();
    std::free(this);
  }
};

class HeapAllocator final : public Allocator {
 public:
  RefPtr<Buffer> Allocate(size_t bytes) override { return AdoptRef<Buffer>(HeapBuffer::New(bytes)); }
  const char* name() const override { return "heap"; }
  std::string Shortage(size_t bytes) const override { return MemoryBudget::Process()->Shortage(bytes); }
};

}  // namespace

Allocator* Allocator::Heap() {
  static HeapAllocator* const allocator = new HeapAllocator;
  return allocator;
}

}  // namespace millrace
