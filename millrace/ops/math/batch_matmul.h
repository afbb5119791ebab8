// What BatchMatMul's versions multiply.
#pragma once

#include "millrace/ops/kernels/gemm.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

class BatchMatMulOp {
 public:
  explicit BatchMatMulOp(KernelInit& init);

  struct Call {
    GemmShape shape;  // of each product
    Shape result;
    // The batch dimensions, outermost first, and how many matrices of x and y lie between neighbours along each: 0
    // where it is broadcast.
    Shape::Dims batch, step_x, step_y;
  };
  // INVALID_ARGUMENT unless the shapes of the inputs fit.
  StatusOr<Call> Get(KernelContext& ctx) const;

  bool adj_x() const { return adj_x_; }
  bool adj_y() const { return adj_y_; }

 private:
  const bool broadcasts_;  // from V2 on
  bool adj_x_ = false;
  bool adj_y_ = false;
};

// A batch of products as as many uniform ones as can be: `count` products at a time, for each of `starts`.
struct UniformBatches {
  struct Start {
    int64_t x, y, product;  // the first matrices
  };
  int64_t count = 1;
  int64_t step_x = 0, step_y = 0, step_product = 0;  // in matrices
  std::vector<Start> starts;
};
UniformBatches SplitBatch(const BatchMatMulOp::Call& call);

}  // namespace millrace
