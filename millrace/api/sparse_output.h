// A sparse tensor of the graph: three tensors, as ops take and return them.
#pragma once

#include "millrace/api/output.h"

namespace millrace {

// Element i is values[i] at the index indices[i]; in the order of the indices, where nothing else is said.
struct SparseOutput {
  Output indices = {};      // int64 [n, rank]
  Output values = {};       // [n]
  Output dense_shape = {};  // int64 [rank]

  bool empty() const { return values.empty(); }
};

}  // namespace millrace
