// Budgets of memory: how many bytes tensors may take in this process, and in each session.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {

// Holds memory that is free and charged to a budget, such as a step's cache.
class MemoryCache {
 public:
  // Frees it. Called with the budget's lock held; must not call the budget except for Release.
  virtual void Trim() = 0;

 protected:
  ~MemoryCache() = default;
};

// Counts the bytes of tensors and refuses those above its limit. What a child is charged for, its parent is too.
// Thread-safe.
class MemoryBudget : public RefCounted {
 public:
  // `name` is for messages: "session 4940d9ac62d2fd31". A limit of 0 is none.
  explicit MemoryBudget(std::string name, size_t limit = 0, MemoryBudget* parent = Process());

  // The budget of the process; its limit is the memory of the machine or of the cgroup, whichever is less, unless
  // set_limit changes it. Never null, never destroyed.
  static MemoryBudget* Process();

  // Returns false, and charges nothing, if a limit would be exceeded even after the caches have been trimmed.
  bool Charge(size_t bytes);
  void Release(size_t bytes) { Count(-static_cast<int64_t>(bytes)); }
  // Adds to what is used, whatever the limits say.
  void Count(int64_t bytes);

  size_t used() const;
  size_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(size_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  // Which limit does not allow `bytes` more: "; session ... uses 900 of its 1000 bytes". Empty if all do.
  std::string Shortage(size_t bytes) const;

  // A cache must be removed before it is destroyed.
  void Add(MemoryCache* cache);
  void Remove(MemoryCache* cache);
  // Frees what the caches hold.
  void Trim();

 private:
  bool TryCharge(size_t bytes);

  const std::string name_;
  MemoryBudget* const parent_;  // never destroyed; null for the process
  std::atomic<size_t> limit_;
  std::atomic<int64_t> used_{0};
  Mutex mu_;
  absl::flat_hash_set<MemoryCache*> caches_ ABSL_GUARDED_BY(mu_);
};

// Charges the process for a buffer of the heap. Small ones are counted for each thread and charged in batches.
bool ChargeHeap(size_t bytes);
void ReleaseHeap(size_t bytes);

// RESOURCE_EXHAUSTED, naming `what` and its size, if there cannot be memory for `count` elements of `size` bytes: more
// than one allocation may have, or than the process's budget has left. For containers whose size comes from a graph,
// before they grow.
Status CheckRoom(int64_t count, size_t size, string_view what);

}  // namespace millrace
