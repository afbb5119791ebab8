// Memory to copy from and to.
#pragma once

#include <cstddef>
#include <utility>

#include "millrace/base/status.h"

namespace millrace::bench_net {

// Pages that have all been written to: the first touch of a page costs several times the copy into it.
class TouchedMemory {
 public:
  TouchedMemory() = default;
  TouchedMemory(TouchedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  TouchedMemory& operator=(TouchedMemory&& other) noexcept;
  ~TouchedMemory();

  static StatusOr<TouchedMemory> Private(size_t size);
  // Of a file that holds at least so much; shared with whoever maps it.
  static StatusOr<TouchedMemory> Shared(int fd, size_t size);

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static StatusOr<TouchedMemory> Map(int fd, size_t size);
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace::bench_net
