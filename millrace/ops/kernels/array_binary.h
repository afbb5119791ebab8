// Binary kernels whose functor has a faster form for arrays of floats.
#pragma once

#include "millrace/ops/kernels/elementwise.h"

namespace millrace {

// Like BinaryOf, but for float it uses F::Run(a, b, y, n); scalar operands are passed as arrays of one repeated value.
// y may alias a or b. Every element takes this path, so that its result does not depend on its position.
template <typename F, typename InTypes>
class ArrayBinaryOf : public BinaryOf<F, InTypes> {
 public:
  explicit ArrayBinaryOf(KernelInit& init) : BinaryOf<F, InTypes>(init) {
    if (init.input_type(0) == DType::kFloat) this->loop_ = &Loop;
  }

 private:
  static bool Loop(Operands operands, const void* left, const void* right, void* out, int64_t n) {
    const float* a = static_cast<const float*>(left);
    const float* b = static_cast<const float*>(right);
    float* y = static_cast<float*>(out);
    if (operands == Operands::kBothMove) {
      F::Run(a, b, y, n);
      return true;
    }
    float one[kBlock];
    const bool left_stands = operands == Operands::kLeftStands;
    std::fill_n(one, std::min(n, kBlock), left_stands ? *a : *b);
    for (int64_t i = 0; i < n; i += kBlock) {
      F::Run(left_stands ? one : a + i, left_stands ? b + i : one, y + i, std::min(kBlock, n - i));
    }
    return true;
  }
};

}  // namespace millrace
