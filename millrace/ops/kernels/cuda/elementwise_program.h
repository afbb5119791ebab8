// The text of a GPU's element-wise kernels: one functor of ops/kernels/functors.h over all elements.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

struct ElementwiseProgram {
  // "AddFn". With more operands than it has, it is applied to the result so far and the next one.
  std::string functor;
  int arity = 1;
  std::vector<DType> inputs;
  DType output = DType::kInvalid;
  // Operands of other shapes than the result's, at most kMostStrided; otherwise each is of its shape, or one element.
  bool is_strided = false;

  static constexpr int kMostStrided = 3;
  // The name of the kernel in the text. Its arguments: the number of elements; the Strides, if strided; of each operand
  // its address and, if not strided, whether it moves (int: 1 or 0); the address of the result.
  static constexpr char kKernel[] = "millrace_elementwise";

  // C++ for NVRTC, complete but for options: what all programs begin with, and the kernel.
  std::string Text() const { return absl::StrCat(Headers(), Kernel(kKernel)); }
  static std::string Headers();
  std::string Kernel(const std::string& name) const;
};

// The type's name in programs; null if they have no elements of it.
const char* ProgramTypeName(DType dtype);

}  // namespace millrace
