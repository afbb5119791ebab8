// The text of a GPU's kernels that update a variable and its slots: an optimizer's Step over all elements, or those of
// the rows that indices name.
#pragma once

#include <string>
#include <vector>

#include "millrace/tensor/dtype.h"

namespace millrace {

struct OptimizerProgram {
  std::string optimizer;  // "Adam": a struct of optimizer_steps.h
  int variables = 1;
  int scalars = 1;
  int step_scalar = -1;  // the scalar that is an int64, if one is

  // The name of the kernel in the text. Its arguments: the number of elements; the flag (int); the addresses of the
  // scalars, of the old values, of the gradient and of the new values.
  static constexpr char kKernel[] = "millrace_step";

  // The same for rows. Its arguments: the number of sorted slots (ops/kernels/cuda/rows_program.h); the elements of a
  // row; the flag; the addresses of the slots, of the scalars, of the gradient and of the values.
  static constexpr char kRowsKernel[] = "millrace_step_rows";

  // C++ for NVRTC, complete but for options.
  std::string Text(DType dtype) const;
  std::string RowsText(DType dtype) const;
  // What such texts begin with, and the kernels.
  static std::string Headers();
  static std::string RowsHeaders();
  std::string Kernel(const std::string& name, DType dtype) const;
  std::string RowsKernel(const std::string& name, DType dtype) const;

 private:
  std::string ScalarArguments(DType dtype) const;
  std::string MakeStep() const;
};

// An op whose update has a kernel for GPUs.
struct GpuOptimizer {
  const char* op;
  bool by_rows;
  OptimizerProgram program;
  std::vector<std::string> scalars;  // their names in the schema, in the program's order
  std::vector<DType> types;
};

const std::vector<GpuOptimizer>& GpuOptimizers();

}  // namespace millrace
