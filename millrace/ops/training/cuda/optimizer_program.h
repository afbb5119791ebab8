// The text of a GPU's kernel that updates a variable and its slots: an optimizer's Step over all elements.
#pragma once

#include <string>
#include <vector>

#include "millrace/tensor/dtype.h"

namespace millrace {

struct OptimizerProgram {
  std::string optimizer;  // "Adam": a struct of optimizer_steps.h
  int variables = 1;
  int scalars = 1;

  // The name of the kernel in the text. Its arguments: the number of elements; the flag (int); the addresses of the
  // scalars, of the old values, of the gradient and of the new values.
  static constexpr char kKernel[] = "millrace_step";

  // C++ for NVRTC, complete but for options.
  std::string Text(DType dtype) const;
  // What such texts begin with, and the kernel.
  static std::string Headers();
  std::string Kernel(const std::string& name, DType dtype) const;
};

// An op whose dense update has a kernel for GPUs.
struct GpuOptimizer {
  const char* op;
  OptimizerProgram program;
  std::vector<std::string> scalars;  // their names in the schema, in the program's order
  std::vector<DType> types;
};

const std::vector<GpuOptimizer>& GpuOptimizers();

}  // namespace millrace
