// MatrixDiag, MatrixDiagV2 and MatrixDiagV3: matrices built from their diagonals.
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

// Chooses the matrix size where it is not given (-1) so that the band, with `longest` elements per row, fits, and
// checks given sizes.
Status ChooseSize(int64_t longest, DiagonalBand* band) {
  const int64_t min_rows = longest - std::min<int64_t>(band->upper, 0);
  const int64_t min_cols = longest + std::max<int64_t>(band->lower, 0);
  if (band->rows == -1 && band->cols == -1) {
    band->rows = band->cols = std::max(min_rows, min_cols);
  } else if (band->rows == -1) {
    band->rows = min_rows;
  } else if (band->cols == -1) {
    band->cols = min_cols;
  }
  if (band->rows < min_rows) {
    return InvalidArgument("The number of rows is too small: ", band->rows, " < ", min_rows);
  }
  if (band->cols < min_cols) {
    return InvalidArgument("The number of columns is too small: ", band->cols, " < ", min_cols);
  }
  if (band->rows != min_rows && band->cols != min_cols) {
    return InvalidArgument(
        "The number of rows or columns is not consistent with the specified "
        "d_lower, d_upper, and diagonal: ",
        band->rows, " x ", band->cols);
  }
  // A diagonal of the band that is outside the matrix is empty.
  return absl::OkStatus();
}

class MatrixDiagKernel : public Kernel {
 public:
  explicit MatrixDiagKernel(KernelInit& init) : v1_(init.node().num_inputs() == 1) {
    init.Fail(ReadAlignment(init.node(), &alignment_));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& diagonal = ctx.input(0);
    const int rank = diagonal.rank();
    if (rank < 1) return InvalidArgument("diagonal must be at least 1-dim, received shape: []");
    DiagonalBand band = alignment_;
    band.rows = band.cols = -1;
    if (!v1_) {
      MR_RETURN_IF_ERROR(ReadDiagonals(ctx.input(1), &band));
      MR_ASSIGN_OR_RETURN(band.rows, ReadInt(ctx.input(2), "num_rows"));
      MR_ASSIGN_OR_RETURN(band.cols, ReadInt(ctx.input(3), "num_cols"));
      if (ctx.input(4).num_elements() != 1) return InvalidArgument("padding_value must be a scalar");
    }
    int lead = rank - 1;
    if (band.count() > 1) {
      lead = rank - 2;
      if (rank < 2 || diagonal.dim(rank - 2) != band.count()) {
        return InvalidArgument(
            "The number of diagonals provided in the input does not match the "
            "lower_diag_index and upper_diag_index range: ",
            band.lower, " to ", band.upper, " for shape ", diagonal.shape().ToString());
      }
    }
    const int64_t longest = diagonal.dim(rank - 1);
    MR_RETURN_IF_ERROR(ChooseSize(longest, &band));
    Shape::Dims dims(diagonal.shape().dims().begin(), diagonal.shape().dims().begin() + lead);
    dims.push_back(band.rows);
    dims.push_back(band.cols);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    MR_RETURN_IF_ERROR(FillWithPadding(ctx, v1_ ? nullptr : &ctx.input(4), out));
    return CopyBand(ctx, band, shape.Product(0, lead), longest, CopyDiagonals::kToMatrices, diagonal, out);
  }

 private:
  const bool v1_;
  DiagonalBand alignment_;
};

Status MatrixDiagShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 1));
  if (!in.known_rank()) return absl::OkStatus();
  DiagonalBand band;
  band.rows = band.cols = -1;
  if (c.num_inputs() > 1) {
    const Tensor *k = c.constant(1), *rows = c.constant(2), *cols = c.constant(3);
    if (k == nullptr) return absl::OkStatus();
    MR_RETURN_IF_ERROR(ReadDiagonals(*k, &band));
    const int lead = in.rank() - (band.count() > 1 ? 2 : 1);
    if (lead < 0) return InvalidArgument("diagonal must be at least a matrix for several diagonals");
    if (rows == nullptr || cols == nullptr) {
      c.set_output(0, JoinShapes(SubShape(in, 0, lead), PartialShape({-1, -1})));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(band.rows, ReadInt(*rows, "num_rows"));
    MR_ASSIGN_OR_RETURN(band.cols, ReadInt(*cols, "num_cols"));
  }
  const int lead = in.rank() - (band.count() > 1 ? 2 : 1);
  const int64_t longest = in.dim(in.rank() - 1);
  if (longest >= 0) {
    MR_RETURN_IF_ERROR(ChooseSize(longest, &band));
  }
  c.set_output(0, JoinShapes(SubShape(in, 0, lead), PartialShape({band.rows, band.cols})));
  return absl::OkStatus();
}

Status MatrixDiagGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MatrixDiagPart", {c.grad()}));
  return absl::OkStatus();
}

// The gradient of the padding goes to the padding value.
Status MatrixDiagBandGradient(GradientContext& c) {
  const Endpoint zero = c.ScalarLike(0, c.input(0).dtype());
  AttrList align;
  if (c.node()->FindAttr("align") != nullptr) {
    align.emplace_back("align", c.AttrOr<std::string>("align", ""));
  }
  const bool v3 = !align.empty();
  c.set_input_grad(0, c.Op(v3 ? "MatrixDiagPartV3" : "MatrixDiagPartV2", {c.grad(), c.input(1), zero}, align));
  const Endpoint off =
      c.Op(v3 ? "MatrixSetDiagV3" : "MatrixSetDiagV2", {c.grad(), c.ZerosLike(c.input(0)), c.input(1)}, align);
  c.set_input_grad(4, c.Op("Sum", {c.Reshape(off, c.Ints({-1})), c.Ints({0})}));
  return absl::OkStatus();
}

MILLRACE_OP(MatrixDiag)
    .Input("diagonal: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(MatrixDiagShape)
    .Gradient(MatrixDiagGradient)
    .Summary("Matrices with the given diagonals.");
MILLRACE_KERNEL(MatrixDiag, kCpu, MatrixDiagKernel);
MILLRACE_KERNEL(MatrixDiag, kCuda, MatrixDiagKernel);

MILLRACE_OP(MatrixDiagV2)
    .Input("diagonal: T")
    .Input("k: int32")
    .Input("num_rows: int32")
    .Input("num_cols: int32")
    .Input("padding_value: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(MatrixDiagShape)
    .Gradient(MatrixDiagBandGradient)
    .Summary("Matrices with the given band of diagonals.");
MILLRACE_KERNEL(MatrixDiagV2, kCpu, MatrixDiagKernel);
MILLRACE_KERNEL(MatrixDiagV2, kCuda, MatrixDiagKernel);
MILLRACE_HOST_MEMORY(MatrixDiagV2, "GPU", "k");
MILLRACE_HOST_MEMORY(MatrixDiagV2, "GPU", "num_rows");
MILLRACE_HOST_MEMORY(MatrixDiagV2, "GPU", "num_cols");

MILLRACE_OP(MatrixDiagV3)
    .Input("diagonal: T")
    .Input("k: int32")
    .Input("num_rows: int32")
    .Input("num_cols: int32")
    .Input("padding_value: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'")
    .Shape(MatrixDiagShape)
    .Gradient(MatrixDiagBandGradient)
    .Summary("Matrices with the given band of diagonals, with selectable alignment.");
MILLRACE_KERNEL(MatrixDiagV3, kCpu, MatrixDiagKernel);
MILLRACE_KERNEL(MatrixDiagV3, kCuda, MatrixDiagKernel);
MILLRACE_HOST_MEMORY(MatrixDiagV3, "GPU", "k");
MILLRACE_HOST_MEMORY(MatrixDiagV3, "GPU", "num_rows");
MILLRACE_HOST_MEMORY(MatrixDiagV3, "GPU", "num_cols");

}  // namespace
}  // namespace millrace
