#include "millrace/tensor/memory_budget.h"

#include <algorithm>
#include <utility>

#include "millrace/tensor/memory_limit.h"

namespace millrace {
namespace {

// What a thread may have counted without charging it.
constexpr int64_t kBatch = 256 << 10;

// Bytes that this thread has allocated less those that it has freed, since it last charged or released them.
struct ThreadShare {
  ~ThreadShare() { MemoryBudget::Process()->Count(bytes); }
  int64_t bytes = 0;
};

ThreadShare& ShareOfThisThread() {
  static thread_local ThreadShare share;
  return share;
}

}  // namespace

MemoryBudget::MemoryBudget(std::string name, size_t limit, MemoryBudget* parent)
    : name_(std::move(name)), parent_(parent), limit_(limit) {}

MemoryBudget* MemoryBudget::Process() {
  static MemoryBudget* const process = new MemoryBudget("this process", MachineMemory(), nullptr);
  return process;
}

bool MemoryBudget::TryCharge(size_t bytes) {
  const size_t limit = this->limit();
  const int64_t used = used_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (limit == 0 || used + static_cast<int64_t>(bytes) <= static_cast<int64_t>(limit)) return true;
  used_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return false;
}

bool MemoryBudget::Charge(size_t bytes) {
  if (!TryCharge(bytes)) {
    Trim();
    if (!TryCharge(bytes)) return false;
  }
  if (parent_ == nullptr || parent_->Charge(bytes)) return true;
  used_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return false;
}

void MemoryBudget::Count(int64_t bytes) {
  used_.fetch_add(bytes, std::memory_order_relaxed);
  if (parent_ != nullptr) parent_->Count(bytes);
}

size_t MemoryBudget::used() const {
  return static_cast<size_t>(std::max<int64_t>(0, used_.load(std::memory_order_relaxed)));
}

std::string MemoryBudget::Shortage(size_t bytes) const {
  const size_t limit = this->limit(), used = this->used();
  if (limit != 0 && (bytes > limit || used > limit - bytes))
    return absl::StrCat("; ", name_, " uses ", used, " of the ", limit, " bytes that it may have");
  return parent_ == nullptr ? "" : parent_->Shortage(bytes);
}

void MemoryBudget::Add(MemoryCache* cache) {
  {
    MutexLock lock(&mu_);
    caches_.insert(cache);
  }
  if (parent_ != nullptr) parent_->Add(cache);
}

void MemoryBudget::Remove(MemoryCache* cache) {
  if (parent_ != nullptr) parent_->Remove(cache);
  MutexLock lock(&mu_);
  caches_.erase(cache);
}

void MemoryBudget::Trim() {
  MutexLock lock(&mu_);
  for (MemoryCache* cache : caches_) cache->Trim();
}

bool ChargeHeap(size_t bytes) {
  if (bytes >= static_cast<size_t>(kBatch)) return MemoryBudget::Process()->Charge(bytes);
  int64_t& share = ShareOfThisThread().bytes;
  share += static_cast<int64_t>(bytes);
  if (share <= kBatch) return true;
  if (MemoryBudget::Process()->Charge(static_cast<size_t>(share))) {
    share = 0;
    return true;
  }
  share -= static_cast<int64_t>(bytes);
  return false;
}

void ReleaseHeap(size_t bytes) {
  if (bytes >= static_cast<size_t>(kBatch)) return MemoryBudget::Process()->Release(bytes);
  int64_t& share = ShareOfThisThread().bytes;
  share -= static_cast<int64_t>(bytes);
  if (share >= -kBatch) return;
  MemoryBudget::Process()->Count(share);
  share = 0;
}

Status CheckRoom(int64_t count, size_t size, string_view what) {
  size_t bytes = 0;
  const bool fits = count >= 0 && !__builtin_mul_overflow(static_cast<size_t>(count), size, &bytes);
  if (!fits) return ResourceExhausted("no memory for ", what, " of ", count, " elements");
  const std::string shortage = bytes > MaxAllocation() ? "" : MemoryBudget::Process()->Shortage(bytes);
  if (bytes <= MaxAllocation() && shortage.empty()) return absl::OkStatus();
  return ResourceExhausted("no memory for ", what, " of ", count, " elements (", bytes, " bytes)", shortage);
}

}  // namespace millrace
