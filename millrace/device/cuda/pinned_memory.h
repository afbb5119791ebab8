// Pinned (page-locked) host memory for copies to and from a GPU.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/tensor/buffer.h"

namespace millrace {

// Page-locked memory in power-of-two size classes. Freed memory is retained, because locking pages costs far more than
// the copy. Otherwise ordinary host memory. Thread-safe; never destroyed.
class PinnedAllocator : public Allocator {
 public:
  explicit PinnedAllocator(int ordinal);
  // Null if no memory can be locked.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return name_.c_str(); }

  // True for memory of any PinnedAllocator.
  static bool Owns(const Buffer& buffer);

 private:
  class PinnedBuffer;
  // From 4 KiB up.
  static constexpr int kFirstClass = 12;
  static constexpr int kNumClasses = 40 - kFirstClass;
  // At most this much freed memory is retained.
  static constexpr size_t kMaxKept = size_t{4} << 30;

  void Return(PinnedBuffer* buffer);

  const int ordinal_;
  const std::string name_;
  Mutex mu_;
  std::array<std::vector<PinnedBuffer*>, kNumClasses> free_ ABSL_GUARDED_BY(mu_);
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
