#include "millrace/tools/bench_net/touched_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/base/huge_pages.h"

namespace millrace::bench_net {
StatusOr<TouchedMemory> TouchedMemory::Map(int fd, size_t size) {
  void* const block =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (block == MAP_FAILED)
    return ResourceExhausted("cannot allocate ", size, " bytes: ", strerror(errno), "; try a smaller --max_size");
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

}  // namespace millrace::bench_net
