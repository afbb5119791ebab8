// The memory of a run: freed buffers are kept for later nodes and for the next step.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/tensor/buffer.h"

namespace millrace {

// Free lists by size class. In the steady state a step allocates nothing from the heap: a value's buffer is returned at
// its last use, and the next output of that size reuses it. First touching a fresh page costs several times as much as
// copying into it, so reuse also saves time.
//
// Thread-safe. Buffers may outlive the run (fetches, variables) and keep the arena alive.
class StepArena : public Allocator, public RefCounted {
 public:
  StepArena() = default;
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return "cpu_step"; }

  // The number of bytes held, whether in use or free.
  size_t bytes_reserved() const;

 protected:
  ~StepArena() override;

 private:
  class ArenaBuffer;
  // Eight classes per power of two: at most an eighth is wasted.
  static constexpr int kNumClasses = 8 * 48;

  void Return(ArenaBuffer* buffer);

  mutable Mutex mu_;
  std::array<std::vector<ArenaBuffer*>, kNumClasses> free_ ABSL_GUARDED_BY(mu_);
  size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
