#include "millrace/executor/step_arena.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "millrace/base/huge_pages.h"
#include "millrace/tensor/memory_limit.h"

namespace millrace {
namespace {

struct SizeClass {
  int index;
  size_t bytes;
};

// Classes 1/8 of a power of two apart, from 64 bytes up.
SizeClass ClassOf(size_t bytes) {
  if (bytes <= 64) return {0, 64};
  const size_t n = bytes - 1;
  const int top = 63 - __builtin_clzll(n);
  const size_t step = size_t{1} << (top >= 9 ? top - 3 : 6);
  const size_t rounded = (n / step + 1) * step;
  const int within = static_cast<int>((n - (size_t{1} << top)) / step);
  return {(top - 6) * 8 + within + 1, rounded};
}

}  // namespace

// Lies in the same block as its data: one header's width before it.
class StepArena::ArenaBuffer : public Buffer {
 public:
  static constexpr size_t kHeader = 128;

  ArenaBuffer(StepArena* arena, int size_class, void* data, size_t capacity)
      : Buffer(data, capacity), arena_(arena), class_(size_class), capacity_(capacity) {}

  void Lend(size_t bytes) {
    size_ = bytes;
    ResetRefs();
    arena_->Ref();
  }
  int size_class() const { return class_; }
  size_t capacity() const { return capacity_; }
  static void Free(ArenaBuffer* buffer) {
    buffer->~ArenaBuffer();
    std::free(buffer);
  }

 protected:
  ~ArenaBuffer() override = default;
  void Destroy() override {
    StepArena* arena = arena_;
    arena->Return(this);
    arena->Unref();
  }

 private:
  StepArena* const arena_;
  const int class_;
  const size_t capacity_;
};

StepArena::StepArena(RefPtr<MemoryBudget> budget)
    : budget_(budget ? std::move(budget) : ShareRef(MemoryBudget::Process())) {
  budget_->Add(this);
}

RefPtr<Buffer> StepArena::Allocate(size_t bytes) {
  static_assert(sizeof(ArenaBuffer) <= ArenaBuffer::kHeader);
  if (bytes > (size_t{1} << 50) || (bytes > (1 << 16) && bytes > MaxAllocation())) return nullptr;
  const SizeClass size_class = ClassOf(bytes);
  {
    MutexLock lock(&mu_);
    auto& list = free_[size_class.index];
    if (!list.empty()) {
      ArenaBuffer* buffer = list.back();
      list.pop_back();
      buffer->Lend(bytes);
      return AdoptRef<Buffer>(buffer);
    }
  }
  if (!budget_->Charge(size_class.bytes)) return nullptr;
  void* block = std::aligned_alloc(Buffer::kAlignment, ArenaBuffer::kHeader + size_class.bytes);
  if (block == nullptr) {
    budget_->Release(size_class.bytes);
    return nullptr;
  }
  {
    MutexLock lock(&mu_);
    reserved_ += size_class.bytes;
  }
  AdviseHugePages(block, size_class.bytes);
  auto* buffer = new (block)
      ArenaBuffer(this, size_class.index, static_cast<char*>(block) + ArenaBuffer::kHeader, size_class.bytes);
  buffer->Lend(bytes);
  return AdoptRef<Buffer>(buffer);
}

void StepArena::Return(ArenaBuffer* buffer) {
  MutexLock lock(&mu_);
  free_[buffer->size_class()].push_back(buffer);
}

size_t StepArena::bytes_reserved() const {
  MutexLock lock(&mu_);
  return reserved_;
}

void StepArena::Trim() {
  std::vector<ArenaBuffer*> surplus;
  size_t bytes = 0;
  {
    MutexLock lock(&mu_);
    for (auto& list : free_) {
      surplus.insert(surplus.end(), list.begin(), list.end());
      list.clear();
    }
    for (const ArenaBuffer* buffer : surplus) bytes += buffer->capacity();
    reserved_ -= bytes;
  }
  for (ArenaBuffer* buffer : surplus) ArenaBuffer::Free(buffer);
  budget_->Release(bytes);
}

StepArena::~StepArena() {
  budget_->Remove(this);
  Trim();
}

}  // namespace millrace
