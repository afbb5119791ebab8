#include "millrace/tensor/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>

namespace millrace {

size_t MachineMemory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  size_t limit = pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page)
                                       : std::numeric_limits<size_t>::max() / 2;
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    uint64_t group = 0;
    if (in >> group && group > 0) limit = std::min<size_t>(limit, group);
  }
  return limit;
}

namespace {

std::atomic<size_t>& Limit() {
  static std::atomic<size_t> limit(MachineMemory());
  return limit;
}

}  // namespace

size_t MaxAllocation() { return Limit().load(std::memory_order_relaxed); }

void SetMaxAllocation(size_t bytes) { Limit().store(bytes, std::memory_order_relaxed); }

}  // namespace millrace
