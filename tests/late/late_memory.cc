#include "tests/late/late_memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

#include "millrace/base/status.h"

namespace millrace::late {
namespace {

// Not a plausible number in any type.
constexpr int kFreed = 0xdb;
constexpr size_t kPage = 4096;

}  // namespace

LateMemory& LateMemory::Global() {
  static auto* const memory = new LateMemory;
  return *memory;
}

LateMemory::LateMemory() {
  void* const base = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MR_CHECK(base != MAP_FAILED);
  base_ = static_cast<char*>(base);
}

int LateMemory::ClassOf(size_t bytes) {
  const int width = static_cast<int>(std::bit_width(bytes > 0 ? bytes - 1 : 0));
  return width < kSmallest ? 0 : width - kSmallest;
}

void* LateMemory::Allocate(size_t bytes) {
  const int size_class = ClassOf(bytes);
  if (size_class >= kClasses) return nullptr;
  MutexLock lock(&mu_);
  if (auto& free = free_[size_class]; !free.empty()) {
    void* const data = free.back();
    free.pop_back();
    return data;
  }
  const size_t size = size_t{1} << (kSmallest + size_class);
  if (size > kReserved - next_) return nullptr;
  void* const data = base_ + next_;
  next_ += size;
  const size_t used = (next_ + kPage - 1) / kPage * kPage;
  if (windows_ > 0 && used > used_) Protect(PROT_READ | PROT_WRITE, used_, used);
  used_ = used;
  return data;
}

void LateMemory::Free(void* data, size_t bytes) {
  std::memset(data, kFreed, bytes);
  MutexLock lock(&mu_);
  free_[ClassOf(bytes)].push_back(data);
}

void LateMemory::Protect(int protection, size_t from, size_t to) {
  if (to > from) MR_CHECK(mprotect(base_ + from, to - from, protection) == 0);
}

void LateMemory::Open() {
  MutexLock lock(&mu_);
  if (windows_++ == 0) Protect(PROT_READ | PROT_WRITE, 0, used_);
}

void LateMemory::Close() {
  MutexLock lock(&mu_);
  if (--windows_ == 0) Protect(PROT_NONE, 0, used_);
}

}  // namespace millrace::late
