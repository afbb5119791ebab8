// The memory behind a tensor.
#pragma once

#include <cstddef>

#include "millrace/base/ref.h"

namespace millrace {

// A block of bytes with a reference count. How it is freed is the subclass's matter: plain memory,
// a step's cache, a device, a file mapping, a slice of another buffer.
class Buffer : public RefCounted {
 public:
  static constexpr size_t kAlignment = 64;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  // True when a kernel may write into it once it holds the only reference. False for memory that
  // is somebody else's, such as a caller's array or a file mapping.
  bool writable() const { return writable_; }
  // The buffer whose memory this is a part of; itself when it is whole.
  virtual const Buffer* root() const { return this; }

 protected:
  Buffer(void* data, size_t size, bool writable = true)
      : data_(data), size_(size), writable_(writable) {}

  void* data_;
  size_t size_;
  bool writable_;
};

// Where buffers come from. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // 64-byte aligned, contents undefined. Null when there is no memory.
  virtual RefPtr<Buffer> Allocate(size_t bytes) = 0;
  // For step statistics and messages.
  virtual const char* name() const = 0;

  // The process's heap.
  static Allocator* Heap();
};

}  // namespace millrace
