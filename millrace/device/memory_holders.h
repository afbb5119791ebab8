// Who holds the memory of devices: for the message when there is no more.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/mutex.h"
#include "millrace/tensor/buffer.h"
#include "millrace/tensor/memory_budget.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// While it exists, what this thread allocates on a device is held by a node or variable: HolderName("node", "a/b").
// Costs next to nothing until memory is allocated. Both texts must outlive it.
class HolderName {
 public:
  HolderName(absl::string_view kind, absl::string_view name);
  ~HolderName();
  HolderName(const HolderName&) = delete;
  HolderName& operator=(const HolderName&) = delete;

  // "node a/b"; "others" if nobody on this thread has said.
  static std::string OfThisThread();

 private:
  const absl::string_view kind_, name_;
  const HolderName* const outer_;
};

// The blocks of all devices' memory. Smaller ones are not listed, so they cost nothing. Thread-safe.
class MemoryHolders {
 public:
  static constexpr size_t kLeast = 64 << 10;  // bytes

  static MemoryHolders& Global();

  // A block of `allocator`, held by whom this thread says.
  void Add(const Allocator* allocator, const void* data, size_t bytes);
  // It is somebody else's from now on. Nothing happens if the block is not listed.
  void Rename(const Tensor& block, absl::string_view kind, absl::string_view name);
  void Remove(const void* data, size_t bytes);

  // "; the largest holders are variable w (800000 bytes), node a/b (400000 bytes)": three at most. Empty without any.
  std::string Largest(const Allocator* allocator) const;

 private:
  struct Block {
    const Allocator* allocator;
    size_t bytes;
    std::string holder;
  };
  mutable Mutex mu_;
  std::map<const void*, Block> blocks_ ABSL_GUARDED_BY(mu_);
};

// Why `budget` does not allow `bytes` more, how much is free, and who holds the most; empty if it allows them.
std::string DeviceShortage(const MemoryBudget& budget, const Allocator* allocator, size_t bytes);

}  // namespace millrace
