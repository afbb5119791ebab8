// Names of things that outlive a step: variables, queues, tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// Anything a ResourceManager keeps. Subclasses are thread-safe.
class Resource : public RefCounted {
 public:
  // For messages and the hang report: "Variable w float[2,3]".
  virtual std::string DebugString() const = 0;
};

// An element of a resource tensor. Also what a reference to a TF1 variable is made of: a ref output
// is a scalar of this type whose tensor has the ref dtype.
class ResourceHandle {
 public:
  std::string device;
  std::string container;
  std::string name;
  std::string type_name;
  uint64_t hash_code = 0;
  // What a variable holds, where known.
  std::vector<std::pair<DType, PartialShape>> dtypes_and_shapes;
  // The thing itself, where it lives in this process; a short-cut around the look-up by name.
  RefPtr<Resource> resource;

  std::string DebugString() const;
};

}  // namespace millrace
