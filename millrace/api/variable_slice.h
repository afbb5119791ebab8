// A variable that checkpoints store as a slice of a larger one.
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
  std::vector<int64_t> offset;  // the start of the slice in each dimension
  Shape shape;

  // The slice spec of SaveV2 and RestoreV2: "8 3 4,2:0,3" is rows 4 and 5 of an 8x3 tensor.
  std::string Spec() const;
};

// Null for a variable that is not a slice. Valid as long as the graph.
const VariableSlice* SliceOf(const Var& variable);
// Declares that `variable` is saved as that slice. Optimizers do so for the slot variables of a part.
void SetSlice(const Var& variable, VariableSlice slice);

}  // namespace millrace
