// The memory of a run: freed buffers are kept for later nodes and for the next step.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/tensor/buffer.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {

// Free lists by size class. In the steady state a step allocates nothing from the heap: a value's buffer is returned at
// its last use, and the next output of that size reuses it. First touching a fresh page costs several times as much as
// copying into it, so reuse also saves time.
//
// Thread-safe. Buffers may outlive the run (fetches, variables) and keep the arena alive.
class StepArena : public Allocator, public MemoryCache, public RefCounted {
 public:
  // Charges all memory that it holds, in use or free, to `budget`; if null, to the process.
  explicit StepArena(RefPtr<MemoryBudget> budget = nullptr);
  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return "cpu_step"; }
  std::string Shortage(size_t bytes) const override { return budget_->Shortage(bytes); }
  // Frees the buffers that are not in use.
  void Trim() override;

  const RefPtr<MemoryBudget>& budget() const { return budget_; }

  // The number of bytes held, whether in use or free.
  size_t bytes_reserved() const;

 protected:
  ~StepArena() override;

 private:
  class ArenaBuffer;
  // Eight classes per power of two: at most an eighth is wasted.
  static constexpr int kNumClasses = 8 * 48;

  void Return(ArenaBuffer* buffer);

  const RefPtr<MemoryBudget> budget_;
  mutable Mutex mu_;
  std::array<std::vector<ArenaBuffer*>, kNumClasses> free_ ABSL_GUARDED_BY(mu_);
  size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
