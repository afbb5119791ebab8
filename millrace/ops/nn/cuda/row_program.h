// The text of a GPU's kernels over rows of logits: softmax and the cross entropies.
#pragma once

#include <string>

#include "millrace/tensor/dtype.h"

namespace millrace {

struct RowProgram {
  std::string op;                   // "Softmax"
  DType dtype = DType::kFloat;      // of the logits
  DType classes = DType::kInvalid;  // of the labels of SparseSoftmaxCrossEntropyWithLogits

  // The name of the kernel in the text. Its arguments: the number of rows, their width, the RowSteps of
  // SoftmaxCrossEntropyWithLogits, and the addresses of inputs and outputs.
  static constexpr char kKernel[] = "millrace_rows";

  // C++ for NVRTC, complete but for options.
  std::string Text() const;
  // What such texts begin with, and the kernel.
  static std::string Headers();
  std::string Kernel(const std::string& name) const;
};

// As the text of programs has it.
struct RowSteps {
  int64_t x_row, x_column, label_row, label_column;
};

}  // namespace millrace
