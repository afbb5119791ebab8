// Memory for measurements.
#pragma once

#include <cstddef>
#include <utility>

#include "millrace/base/status.h"

namespace millrace::bench_net {

// Mapped memory whose pages have all been written to, since the first touch of a page costs several times as much as a
// copy into it.
class TouchedMemory {
 public:
  TouchedMemory() = default;
  TouchedMemory(TouchedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  TouchedMemory& operator=(TouchedMemory&& other) noexcept;
  ~TouchedMemory();

  static StatusOr<TouchedMemory> Private(size_t size);
  // Maps a file of at least that size, shared with every process that maps it.
  static StatusOr<TouchedMemory> Shared(int fd, size_t size);

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static StatusOr<TouchedMemory> Map(int fd, size_t size);
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace::bench_net
