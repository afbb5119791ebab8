#include "millrace/tools/bench_net/touched_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "millrace/base/huge_pages.h"

namespace millrace::bench_net {
namespace {

// The number at the front of a file; the largest there is when there is none ("max").
size_t NumberIn(const std::string& file) {
  std::ifstream in(file);
  size_t number;
  return in >> number ? number : std::numeric_limits<size_t>::max();
}

}  // namespace

StatusOr<TouchedMemory> TouchedMemory::Map(int fd, size_t size) {
  void* const block = mmap(nullptr, size, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (block == MAP_FAILED) return ResourceExhausted("no memory of ", size, " bytes: ", strerror(errno), "; a smaller --max_size needs less");
  TouchedMemory memory;
  memory.data_ = static_cast<char*>(block);
  memory.size_ = size;
  if (fd < 0) AdviseHugePages(block, size);
  std::memset(block, 1, size);
  return memory;
}

StatusOr<TouchedMemory> TouchedMemory::Private(size_t size) { return Map(-1, size); }
StatusOr<TouchedMemory> TouchedMemory::Shared(int fd, size_t size) { return Map(fd, size); }

TouchedMemory& TouchedMemory::operator=(TouchedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

TouchedMemory::~TouchedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

size_t AvailableMemory() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream machine("/proc/meminfo");
  for (std::string line; std::getline(machine, line);) {
    if (line.starts_with("MemAvailable:")) available = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  for (const auto& [limit, used] : {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
                                    std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    const size_t most = NumberIn(limit), now = NumberIn(used);
    if (most != std::numeric_limits<size_t>::max() && now != std::numeric_limits<size_t>::max()) available = std::min(available, most - std::min(most, now));
  }
  return available;
}

}  // namespace millrace::bench_net
