// A variable that is a part of a larger one, as checkpoints know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/tensor/shape.h"

namespace millrace {

class Var;

struct VariableSlice {
  std::string full_name;  // "w" of "w/part_0"
  Shape full_shape;
  std::vector<int64_t> offset;  // where it begins, for each dimension
  Shape shape;

  // As SaveV2 and RestoreV2 take it: "8 3 4,2:0,3" is rows 4 and 5 of an 8x3 tensor.
  std::string Spec() const;
};

// Null for a variable that is whole. Lives as long as the graph.
const VariableSlice* SliceOf(const Var& variable);
// Says that `variable` is saved as that slice. Optimizers do so for what they keep beside a part.
void SetSlice(const Var& variable, VariableSlice slice);

}  // namespace millrace
