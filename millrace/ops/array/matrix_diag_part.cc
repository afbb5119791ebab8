// MatrixDiagPart, MatrixDiagPartV2 and MatrixDiagPartV3: the diagonals of matrices.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/matrix_diagonals.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class MatrixDiagPartKernel : public Kernel {
 public:
  explicit MatrixDiagPartKernel(KernelInit& init) : v1_(init.node().num_inputs() == 1) {
    init.Fail(ReadAlignment(init.node(), &alignment_));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int rank = input.rank();
    if (rank < 2) {
      return InvalidArgument("input must be at least 2-dim, received shape: ", input.shape().ToString());
    }
    DiagonalBand band = alignment_;
    band.rows = input.dim(rank - 2);
    band.cols = input.dim(rank - 1);
    if (!v1_) {
      MR_RETURN_IF_ERROR(ReadDiagonals(ctx.input(1), &band));
      if (ctx.input(2).num_elements() != 1) return InvalidArgument("padding_value must be a scalar");
    }
    MR_RETURN_IF_ERROR(band.Check());
    const int64_t longest = band.Longest();
    Shape::Dims dims(input.shape().dims().begin(), input.shape().dims().end() - 2);
    if (band.count() > 1) dims.push_back(band.count());
    dims.push_back(longest);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    MR_RETURN_IF_ERROR(FillWithPadding(ctx, v1_ ? nullptr : &ctx.input(2), out));
    return CopyBand(ctx, band, input.shape().Product(0, rank - 2), longest, CopyDiagonals::kToBand, input, out);
  }

 private:
  const bool v1_;
  DiagonalBand alignment_;
};

Status MatrixDiagPartShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 2));
  if (!in.known_rank()) return absl::OkStatus();
  DiagonalBand band;
  if (c.num_inputs() > 1) {
    const Tensor* k = c.constant(1);
    if (k == nullptr) return absl::OkStatus();
    MR_RETURN_IF_ERROR(ReadDiagonals(*k, &band));
  }
  band.rows = in.dim(in.rank() - 2);
  band.cols = in.dim(in.rank() - 1);
  PartialShape out = SubShape(in, 0, in.rank() - 2);
  if (band.count() > 1) out.AddDim(band.count());
  if (band.rows >= 0 && band.cols >= 0) {
    MR_RETURN_IF_ERROR(band.Check());
    out.AddDim(band.Longest());
  } else {
    out.AddDim(-1);
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status MatrixDiagPartGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixSetDiag", {c.ZerosLike(c.input(0)), c.grad()}));
  return absl::OkStatus();
}

Status MatrixDiagPartV2Gradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixSetDiagV2", {c.ZerosLike(c.input(0)), c.grad(), c.input(1)}));
  return absl::OkStatus();
}

Status MatrixDiagPartV3Gradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixSetDiagV3", {c.ZerosLike(c.input(0)), c.grad(), c.input(1)},
                           {{"align", c.AttrOr<std::string>("align", "RIGHT_LEFT")}}));
  return absl::OkStatus();
}

MILLRACE_OP(MatrixDiagPart)
    .Input("input: T")
    .Output("diagonal: T")
    .Attr("T: type")
    .Shape(MatrixDiagPartShape)
    .Gradient(MatrixDiagPartGradient)
    .Summary("The diagonals of matrices.");
MILLRACE_KERNEL(MatrixDiagPart, kCpu, MatrixDiagPartKernel);
MILLRACE_KERNEL(MatrixDiagPart, kCuda, MatrixDiagPartKernel);

MILLRACE_OP(MatrixDiagPartV2)
    .Input("input: T")
    .Input("k: int32")
    .Input("padding_value: T")
    .Output("diagonal: T")
    .Attr("T: type")
    .Shape(MatrixDiagPartShape)
    .Gradient(MatrixDiagPartV2Gradient)
    .Summary("A band of diagonals of matrices.");
MILLRACE_KERNEL(MatrixDiagPartV2, kCpu, MatrixDiagPartKernel);
MILLRACE_KERNEL(MatrixDiagPartV2, kCuda, MatrixDiagPartKernel);
MILLRACE_HOST_MEMORY(MatrixDiagPartV2, "GPU", "k");

MILLRACE_OP(MatrixDiagPartV3)
    .Input("input: T")
    .Input("k: int32")
    .Input("padding_value: T")
    .Output("diagonal: T")
    .Attr("T: type")
    .Attr("align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'")
    .Shape(MatrixDiagPartShape)
    .Gradient(MatrixDiagPartV3Gradient)
    .Summary("A band of diagonals of matrices, with selectable alignment.");
MILLRACE_KERNEL(MatrixDiagPartV3, kCpu, MatrixDiagPartKernel);
MILLRACE_KERNEL(MatrixDiagPartV3, kCuda, MatrixDiagPartKernel);
MILLRACE_HOST_MEMORY(MatrixDiagPartV3, "GPU", "k");

}  // namespace
}  // namespace millrace
