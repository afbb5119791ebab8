// Handles of resources, which outlive a step: variables, queues, tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// The base class of what a ResourceManager stores. Reference-counted; subclasses are thread-safe.
class Resource : public RefCounted {
 public:
  // For messages and the hang report: "Variable w float[2,3]".
  virtual std::string DebugString() const = 0;

  // Distinguishes states that do not follow from each other by updates: a resource begins a new epoch when its state is
  // replaced from outside the training. What a run did to it in an earlier epoch is gone, and is done again if the run
  // is repeated. 0 if all is one epoch.
  virtual uint64_t epoch() const { return 0; }

 protected:
  // Another one than all others of the process.
  static uint64_t NewEpoch() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }
};

// An element of a resource tensor. A reference to a TF1 variable uses it too: a ref output is a scalar of this type
// whose tensor has the ref dtype.
class ResourceHandle {
 public:
  std::string device;
  std::string container;
  std::string name;
  std::string type_name;
  uint64_t hash_code = 0;
  // The dtype and shape of a variable's value, if known.
  std::vector<std::pair<DType, PartialShape>> dtypes_and_shapes;
  // The resource itself if it is in this process, which saves the look-up by name; otherwise null.
  RefPtr<Resource> resource;

  std::string DebugString() const;
};

}  // namespace millrace
