// Binary kernels whose functor has a faster form for arrays of floats.
#pragma once

#include "millrace/ops/kernels/elementwise.h"

namespace millrace {

// As BinaryOf, and for float F::Run(a, b, y, n), which also sees operands that stand: as arrays of one value. y may
// be a or b. Every element takes that way, so that it comes out the same wherever it stands.
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
