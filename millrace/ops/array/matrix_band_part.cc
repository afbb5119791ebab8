// MatrixBandPart: matrices with everything outside a band around the diagonal set to zero.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/matrix_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// from and to may be the same memory.
template <typename T>
void KeepBand(const T* from, T* to, int64_t batch, int64_t rows, int64_t cols, int64_t lower, int64_t upper) {
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < rows; ++r, from += cols, to += cols) {
      const int64_t begin = lower < 0 ? 0 : std::min(cols, std::max<int64_t>(0, r - lower));
      const int64_t end = upper < 0 || upper >= cols ? cols : std::max(begin, std::min(cols, r + upper + 1));
      std::fill(to, to + begin, T{});
      if (from != to) std::copy(from + begin, from + end, to + begin);
      std::fill(to + end, to + cols, T{});
    }
  }
}

class MatrixBandPartKernel : public Kernel {
 public:
  explicit MatrixBandPartKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const void* before = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(const BandDims d, DimsOfBand(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    const bool known = DispatchMove(out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      KeepBand(static_cast<const T*>(before), out->raw<T>(), d.matrices, d.rows, d.columns, d.lower, d.upper);
    });
    return known ? absl::OkStatus() : InvalidArgument("MatrixBandPart does not take ", out->dtype());
  }
};

Status MatrixBandPartShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 2));
  c.set_output(0, in);
  return absl::OkStatus();
}

Status MatrixBandPartGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixBandPart", {c.grad(), c.input(1), c.input(2)}));
  return absl::OkStatus();
}

MILLRACE_OP(MatrixBandPart)
    .Input("input: T")
    .Input("num_lower: Tindex")
    .Input("num_upper: Tindex")
    .Output("band: T")
    .Attr("T: type")
    .Attr("Tindex: {int32, int64} = int64")
    .Shape(MatrixBandPartShape)
    .Gradient(MatrixBandPartGradient)
    .Summary("Sets everything outside a band around the diagonal to zero.");
MILLRACE_KERNEL(MatrixBandPart, kCpu, MatrixBandPartKernel);
MILLRACE_HOST_MEMORY(MatrixBandPart, "GPU", "num_lower");
MILLRACE_HOST_MEMORY(MatrixBandPart, "GPU", "num_upper");

}  // namespace

StatusOr<BandDims> DimsOfBand(const KernelContext& ctx) {
  const Shape& shape = ctx.input(0).shape();
  if (shape.rank() < 2) {
    return InvalidArgument("input must be at least 2-dim, received shape: ", shape.ToString());
  }
  const int64_t rows = shape.dim(shape.rank() - 2), cols = shape.dim(shape.rank() - 1);
  MR_ASSIGN_OR_RETURN(const int64_t lower, ReadInt(ctx.input(1), "num_lower"));
  MR_ASSIGN_OR_RETURN(const int64_t upper, ReadInt(ctx.input(2), "num_upper"));
  if (lower > rows) {
    return InvalidArgument("num_lower must be negative or less or equal to number of rows (", rows, ") got: ", lower);
  }
  if (upper > cols) {
    return InvalidArgument("num_upper must be negative or less or equal to number of columns (", cols,
                           ") got: ", upper);
  }
  return BandDims{shape.Product(0, shape.rank() - 2), rows, cols, lower, upper};
}

}  // namespace millrace
