// The ops that reduce along axes and have kernels for GPUs.
#pragma once

#include <string>
#include <vector>

#include "millrace/ops/kernels/cuda/reduction_program.h"

namespace millrace {

struct ReductionOp {
  std::string name;
  ReductionProgram program;
  const char* attr;  // null: of bool
  std::vector<DType> types;
};

const std::vector<ReductionOp>& ReductionOps();

}  // namespace millrace
