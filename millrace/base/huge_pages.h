// Large pages for large blocks of memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace millrace {

// Asks the system to back the block by large pages, where it gives them on request: the first touch of a
// large block is then several times cheaper, and so is a walk in random order. Small blocks are left alone.
inline void AdviseHugePages(void* block, size_t bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  if (bytes < 2 * kHugePage) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(block) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(block) + bytes) & ~(kHugePage - 1);
  if (end > begin) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace millrace
