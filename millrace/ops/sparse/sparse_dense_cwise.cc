// SparseDenseCwiseAdd, SparseDenseCwiseMul, SparseDenseCwiseDiv: a sparse tensor with a dense one broadcast to it;
// SparseTensorDenseAdd.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

enum class CwiseOp { kAdd, kMul, kDiv };

template <CwiseOp op>
class SparseDenseCwiseKernel : public Kernel {
 public:
  explicit SparseDenseCwiseKernel(KernelInit& init) { NeedType(init, RealTypes{}, init.input_type(1)); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    const Tensor& dense = ctx.input(3);
    const int lead = input.rank() - dense.rank();
    if (lead < 0) return Mismatch(input, dense);
    for (int d = 0; d < dense.rank(); ++d) {
      if (dense.dim(d) != 1 && dense.dim(d) != input.shape.dim(lead + d)) return Mismatch(input, dense);
    }
    MR_RETURN_IF_ERROR(input.CheckBounds());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.values->shape()));
    Status status;
    DispatchType(RealTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      for (int64_t i = 0; i < input.count(); ++i) {
        int64_t at = 0;
        for (int d = 0; d < dense.rank(); ++d)
          at = at * dense.dim(d) + (dense.dim(d) == 1 ? 0 : input.Index(i, lead + d));
        const C x = static_cast<C>(input.values->data<T>()[i]), y = static_cast<C>(dense.data<T>()[at]);
        if constexpr (op == CwiseOp::kDiv && std::is_integral_v<C>) {
          if (y == 0) {
            status = InvalidArgument("Integer division by zero");
            return;
          }
          // The smallest integer divided by -1 overflows and wraps to itself.
          out->data<T>()[i] =
              std::is_signed_v<C> && y == static_cast<C>(-1) ? static_cast<T>(-x) : static_cast<T>(x / y);
        } else {
          out->data<T>()[i] = static_cast<T>(op == CwiseOp::kAdd ? x + y : op == CwiseOp::kMul ? x * y : x / y);
        }
      }
    });
    return status;
  }

 private:
  static Status Mismatch(const SparseInput& input, const Tensor& dense) {
    return InvalidArgument("SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [",
                           input.shape.ToString(), "] vs. [", dense.shape().ToString(), "]");
  }
};

// The index in the dense operand of each entry, as rows of indices.
Endpoint DensePlaces(GradientContext& c) {
  const Endpoint indices = c.input(0), shape = c.input(2), dense = c.input(3);
  const Endpoint zero = c.Scalar<int32_t>(0), one64 = c.Scalar<int64_t>(1);
  const Endpoint dense_shape = c.Op("Shape", {dense}, {{"out_type", DType::kInt64}});
  const Endpoint lead = c.Sub(c.Op("Size", {shape}), c.Rank(dense));
  const Endpoint ones = c.Op("Fill", {c.Reshape(lead, c.Ints({1})), one64});
  const Endpoint full = c.Op("ConcatV2", {ones, dense_shape, zero});
  const Endpoint scale = c.Op("Maximum", {c.Op("FloorDiv", {shape, c.Op("Maximum", {full, one64})}), one64});
  const Endpoint places = c.Op("FloorDiv", {indices, scale});
  const Endpoint from = c.Op("Pack", {zero, lead});
  return c.Op("Slice", {places, from, c.Ints({-1, -1})});
}

template <CwiseOp op>
Status SparseDenseCwiseGradient(GradientContext& c) {
  const Endpoint x = c.input(1), dense = c.input(3), g = c.grad();
  const Endpoint places = DensePlaces(c);
  const Endpoint y = c.Op("GatherNd", {dense, places});
  const Endpoint dx = op == CwiseOp::kAdd ? g : op == CwiseOp::kMul ? c.Mul(g, y) : c.Div(g, y);
  const Endpoint dy = op == CwiseOp::kAdd   ? g
                      : op == CwiseOp::kMul ? c.Mul(g, x)
                                            : c.Mul(g, c.Neg(c.Div(x, c.Mul(y, y))));
  const Endpoint dense_shape = c.Op("Shape", {dense}, {{"out_type", DType::kInt64}});
  c.set_input_grad(1, dx);
  c.set_input_grad(3, c.Op("ScatterNd", {places, dy, dense_shape}));
  return c.status();
}

Status SparseDenseCwiseShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SparseRank(c, 0).status());
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  c.set_output(0, PartialShape({indices.dim(0)}));
  return absl::OkStatus();
}

class SparseTensorDenseAddKernel : public Kernel {
 public:
  explicit SparseTensorDenseAddKernel(KernelInit& init) { NeedType(init, NumberTypes{}, init.input_type(1)); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparse(ctx, 0));
    const Tensor& b = ctx.input(3);
    if (a.shape != b.shape()) {
      return InvalidArgument("the operands must have one shape, but have ", a.shape.ToString(), " and ",
                             b.shape().ToString());
    }
    if (b.rank() < 1 || b.rank() > 5) {
      return InvalidArgument("Only tensors with ranks between 1 and 5 are supported, not ", b.rank());
    }
    MR_RETURN_IF_ERROR(a.CheckBounds());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({3}, 0, b.shape()));
    DispatchType(NumberTypes{}, b.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (out->raw_data() != b.raw_data()) std::copy_n(b.data<T>(), b.num_elements(), out->data<T>());
      for (int64_t i = 0; i < a.count(); ++i) {
        T& element = out->data<T>()[a.Offset(i)];
        element = static_cast<T>(element + a.values->data<T>()[i]);
      }
    });
    return absl::OkStatus();
  }
};

Status SparseTensorDenseAddShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SparseRank(c, 0).status());
  c.set_output(0, c.input(3));
  return absl::OkStatus();
}
Status SparseTensorDenseAddGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("GatherNd", {c.grad(), c.input(0)}));
  c.set_input_grad(3, c.grad());
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseDenseCwiseAdd)
    .Input("sp_indices: int64")
    .Input("sp_values: T")
    .Input("sp_shape: int64")
    .Input("dense: T")
    .Output("output: T")
    .Attr("T: numbertype")
    .Shape(SparseDenseCwiseShape)
    .Gradient(SparseDenseCwiseGradient<CwiseOp::kAdd>)
    .Summary("Adds a dense tensor to the entries of a sparse one");
MILLRACE_OP(SparseDenseCwiseMul)
    .Input("sp_indices: int64")
    .Input("sp_values: T")
    .Input("sp_shape: int64")
    .Input("dense: T")
    .Output("output: T")
    .Attr("T: numbertype")
    .Shape(SparseDenseCwiseShape)
    .Gradient(SparseDenseCwiseGradient<CwiseOp::kMul>)
    .Summary("Multiplies the entries of a sparse tensor by a dense one");
MILLRACE_OP(SparseDenseCwiseDiv)
    .Input("sp_indices: int64")
    .Input("sp_values: T")
    .Input("sp_shape: int64")
    .Input("dense: T")
    .Output("output: T")
    .Attr("T: numbertype")
    .Shape(SparseDenseCwiseShape)
    .Gradient(SparseDenseCwiseGradient<CwiseOp::kDiv>)
    .Summary("Divides the entries of a sparse tensor by a dense one");
MILLRACE_OP(SparseTensorDenseAdd)
    .Input("a_indices: Tindices")
    .Input("a_values: T")
    .Input("a_shape: Tindices")
    .Input("b: T")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SparseTensorDenseAddShape)
    .Gradient(SparseTensorDenseAddGradient)
    .Summary("The sum of a sparse and a dense tensor");

MILLRACE_KERNEL(SparseDenseCwiseAdd, kCpu, SparseDenseCwiseKernel<CwiseOp::kAdd>);
MILLRACE_KERNEL(SparseDenseCwiseMul, kCpu, SparseDenseCwiseKernel<CwiseOp::kMul>);
MILLRACE_KERNEL(SparseDenseCwiseDiv, kCpu, SparseDenseCwiseKernel<CwiseOp::kDiv>);
MILLRACE_KERNEL(SparseTensorDenseAdd, kCpu, SparseTensorDenseAddKernel);

}  // namespace millrace::sparse
