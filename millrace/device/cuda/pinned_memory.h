// Host memory that a GPU copies from and to directly.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/tensor/buffer.h"

namespace millrace {

// Page-locked memory in size classes of a power of two, kept when it comes back: locking pages costs
// far more than the copy. Ordinary host memory to everybody else. Thread-safe; lives as long as the process.
class PinnedAllocator : public Allocator {
 public:
  explicit PinnedAllocator(int ordinal);
  // Null when no memory can be locked.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return name_.c_str(); }

  // True for memory of any PinnedAllocator.
  static bool Owns(const Buffer& buffer);

 private:
  class PinnedBuffer;
  // From 4 KiB up.
  static constexpr int kFirstClass = 12;
  static constexpr int kNumClasses = 40 - kFirstClass;
  // Larger ones go back to the system once they are free and this much is kept already.
  static constexpr size_t kMaxKept = size_t{4} << 30;

  void Return(PinnedBuffer* buffer);

  const int ordinal_;
  const std::string name_;
  Mutex mu_;
  std::array<std::vector<PinnedBuffer*>, kNumClasses> free_ ABSL_GUARDED_BY(mu_);
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
