// The kernel of the ops that fill a tensor of a given shape with random numbers.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel.h"

namespace millrace::random {

enum class Distribution { kUniform, kNormal, kTruncatedNormal, kFullInt, kUniformInt };

// Inputs: the shape, those of the source, and for kUniformInt minval and maxval.
class RandomKernel : public Kernel {
 public:
  // A range of integers, as bits.
  struct Range {
    uint64_t low = 0;
    uint64_t size = 0;
  };
  using Fill = void (*)(KernelContext& ctx, const Philox& stream, Range range, Tensor* out);

  RandomKernel(KernelInit& init, SourceKind source, Distribution distribution);
  Status Compute(KernelContext& ctx) override;

 protected:
  // `out` is not empty.
  virtual Status FillOutput(KernelContext& ctx, const Philox& stream, Range range, Tensor* out) const;

 private:
  StatusOr<Range> ReadRange(const KernelContext& ctx, int input) const;

  RandomSource source_;
  const bool has_range_;
  Fill fill_ = nullptr;
};

template <SourceKind source, Distribution distribution>
class RandomKernelOf : public RandomKernel {
 public:
  explicit RandomKernelOf(KernelInit& init) : RandomKernel(init, source, distribution) {}
};

// Null if there is no such distribution for that type.
RandomKernel::Fill FindFill(Distribution distribution, DType dtype);

// Output 0 has the shape given by the value of input 0.
Status RandomShape(ShapeContext& c);

}  // namespace millrace::random
