// Which functor each element-wise op is on a GPU, and for which types.
#pragma once

#include <string>
#include <vector>

#include "millrace/ops/kernels/cuda/elementwise_program.h"

namespace millrace {

struct ElementwiseOp {
  const char* name;
  const char* functor;
  int arity;
  // The attr with the type that `types` are of; null if the op has only one.
  const char* attr;
  std::vector<DType> types;
  bool broadcasts = true;
  // The functor takes the two operands the other way round.
  bool swapped = false;
};

const std::vector<ElementwiseOp>& ElementwiseOps();
// The types between which Cast converts.
std::vector<DType> CastTypes();
// Null if it is none of them.
const ElementwiseOp* FindElementwiseOp(const std::string& name);

}  // namespace millrace
