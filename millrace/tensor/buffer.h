// The memory behind a tensor.
#pragma once

#include <cstddef>
#include <string>

#include "millrace/base/ref.h"

namespace millrace {

// A reference-counted block of memory. The subclass decides how it is freed: heap memory, a step's cache, device
// memory, a file mapping, a slice of another buffer.
class Buffer : public RefCounted {
 public:
  static constexpr size_t kAlignment = 64;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  // True if the holder of the only reference may write to it. False for memory owned by others, such as a caller's
  // array or a file mapping.
  bool writable() const { return writable_; }
  // The buffer that this is a slice of; this buffer itself if it is not a slice.
  virtual const Buffer* root() const { return this; }

 protected:
  Buffer(void* data, size_t size, bool writable = true) : data_(data), size_(size), writable_(writable) {}

  void* data_;
  size_t size_;
  bool writable_;
};

// Allocates buffers. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Returns a 64-byte aligned buffer with undefined contents, or null if memory is exhausted.
  virtual RefPtr<Buffer> Allocate(size_t bytes) = 0;
  // For step statistics and error messages.
  virtual const char* name() const = 0;
  // Which limit does not allow `bytes` more, for the message after Allocate has returned null: "; this process uses
  // ...". Empty if it is not known.
  virtual std::string Shortage(size_t bytes) const { return {}; }

  // The process's heap.
  static Allocator* Heap();
};

}  // namespace millrace
