// MatrixSetDiag, MatrixSetDiagV2 and MatrixSetDiagV3: matrices with their diagonals replaced.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/matrix_diagonals.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class MatrixSetDiagKernel : public Kernel {
 public:
  explicit MatrixSetDiagKernel(KernelInit& init) : v1_(init.node().num_inputs() == 2) {
    init.Fail(ReadAlignment(init.node(), &alignment_));
  }
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const void* before = ctx.input(0).raw_data();
    const Tensor& diagonal = ctx.input(1);
    const int rank = shape.rank();
    if (rank < 2) {
      return InvalidArgument("input must be at least 2-dim, received shape: ", shape.ToString());
    }
    DiagonalBand band = alignment_;
    band.rows = shape.dim(rank - 2);
    band.cols = shape.dim(rank - 1);
    if (!v1_) MR_RETURN_IF_ERROR(ReadDiagonals(ctx.input(2), &band));
    MR_RETURN_IF_ERROR(band.Check());
    Shape wanted(shape.dims().first(rank - 2));
    if (band.count() > 1) wanted.AddDim(band.count());
    wanted.AddDim(band.Longest());
    if (diagonal.shape() != wanted) {
      return InvalidArgument("diagonal must have shape ", wanted.ToString(), " for diagonals ", band.lower, " to ",
                             band.upper, " of matrices ", shape.ToString(), ", got ", diagonal.shape().ToString());
    }
    const bool forwards = ctx.device()->shares_host_memory();
    MR_ASSIGN_OR_RETURN(Tensor * out,
                        forwards ? ctx.ForwardOrAllocateOutput({0}, 0, shape) : ctx.AllocateDeviceOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    if (out->raw_data() != before) {
      CopyBox all;
      all.Add(shape.num_elements(), 1, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(all), ctx.input(0), 0, out, 0));
    }
    return CopyBand(ctx, band, shape.Product(0, rank - 2), band.Longest(), CopyDiagonals::kToMatrices, diagonal, out);
  }

 private:
  const bool v1_;
  DiagonalBand alignment_;
};

Status MatrixSetDiagShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 2));
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(1, 1).status());
  c.set_output(0, in);
  return absl::OkStatus();
}

// The gradient on the diagonals goes to `diagonal` and is zero for the input matrices.
Status MatrixSetDiagGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixSetDiag", {c.grad(), c.ZerosLike(c.input(1))}));
  c.set_input_grad(1, c.Op("MatrixDiagPart", {c.grad()}));
  return absl::OkStatus();
}

Status MatrixSetDiagBandGradient(GradientContext& c) {
  AttrList align;
  if (c.node()->FindAttr("align") != nullptr) {
    align.emplace_back("align", c.AttrOr<std::string>("align", ""));
  }
  const bool v3 = !align.empty();
  const Endpoint k = c.input(2);
  c.set_input_grad(0, c.Op(c.node()->type(), {c.grad(), c.ZerosLike(c.input(1)), k}, align));
  c.set_input_grad(
      1, c.Op(v3 ? "MatrixDiagPartV3" : "MatrixDiagPartV2", {c.grad(), k, c.ScalarLike(0, c.input(0).dtype())}, align));
  return absl::OkStatus();
}

MILLRACE_OP(MatrixSetDiag)
    .Input("input: T")
    .Input("diagonal: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(MatrixSetDiagShape)
    .Gradient(MatrixSetDiagGradient)
    .Summary("Replaces the diagonals of matrices.");
MILLRACE_KERNEL(MatrixSetDiag, kCpu, MatrixSetDiagKernel);
MILLRACE_KERNEL(MatrixSetDiag, kCuda, MatrixSetDiagKernel);

MILLRACE_OP(MatrixSetDiagV2)
    .Input("input: T")
    .Input("diagonal: T")
    .Input("k: int32")
    .Output("output: T")
    .Attr("T: type")
    .Shape(MatrixSetDiagShape)
    .Gradient(MatrixSetDiagBandGradient)
    .Summary("Replaces a band of diagonals of matrices.");
MILLRACE_KERNEL(MatrixSetDiagV2, kCpu, MatrixSetDiagKernel);
MILLRACE_KERNEL(MatrixSetDiagV2, kCuda, MatrixSetDiagKernel);
MILLRACE_HOST_MEMORY(MatrixSetDiagV2, "GPU", "k");

MILLRACE_OP(MatrixSetDiagV3)
    .Input("input: T")
    .Input("diagonal: T")
    .Input("k: int32")
    .Output("output: T")
    .Attr("T: type")
    .Attr("align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'")
    .Shape(MatrixSetDiagShape)
    .Gradient(MatrixSetDiagBandGradient)
    .Summary("Replaces a band of diagonals of matrices, with selectable alignment.");
MILLRACE_KERNEL(MatrixSetDiagV3, kCpu, MatrixSetDiagKernel);
MILLRACE_KERNEL(MatrixSetDiagV3, kCuda, MatrixSetDiagKernel);
MILLRACE_HOST_MEMORY(MatrixSetDiagV3, "GPU", "k");

}  // namespace
}  // namespace millrace
