// SparseMatMul: a product of dense matrices that may contain many zeros.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Ignores the sparsity hints: a dense product is faster than searching for zeros.
class SparseMatMulKernel : public Kernel {
 public:
  explicit SparseMatMulKernel(KernelInit& init) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    if (a.rank() != 2) return InvalidArgument("a is not a matrix: ", a.shape().ToString());
    if (b.rank() != 2) return InvalidArgument("b is not a matrix: ", b.shape().ToString());
    const int64_t m = a.dim(transpose_a_ ? 1 : 0), k = a.dim(transpose_a_ ? 0 : 1);
    const int64_t k2 = b.dim(transpose_b_ ? 1 : 0), n = b.dim(transpose_b_ ? 0 : 1);
    if (k != k2) {
      return InvalidArgument("Matrix size incompatible: a: ", a.shape().ToString(), ", b: ", b.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Tensor left, AsFloat(ctx, a));
    MR_ASSIGN_OR_RETURN(const Tensor right, AsFloat(ctx, b));
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, Shape({m, n})));
    if (product->num_elements() == 0) return absl::OkStatus();
    const GemmShape shape{.m = m, .n = n, .k = k, .transpose_a = transpose_a_, .transpose_b = transpose_b_};
    return MatrixProducts(ctx, shape, {MatrixPair{0, 0}}, left, right, product);
  }

 private:
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

Status SparseMatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  MR_ASSIGN_OR_RETURN(const bool ta, c.Attr<bool>("transpose_a"));
  MR_ASSIGN_OR_RETURN(const bool tb, c.Attr<bool>("transpose_b"));
  const int64_t k = a.dim(ta ? 0 : 1), k2 = b.dim(tb ? 1 : 0);
  if (k >= 0 && k2 >= 0 && k != k2) {
    return InvalidArgument("Matrix size incompatible: a: ", a.ToString(), ", b: ", b.ToString());
  }
  c.set_output(0, PartialShape({a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)}));
  return absl::OkStatus();
}

Status SparseMatMulGradient(GradientContext& c) {
  const bool ta = c.AttrOr<bool>("transpose_a", false), tb = c.AttrOr<bool>("transpose_b", false);
  const Endpoint a = c.Cast(c.input(0), DType::kFloat), b = c.Cast(c.input(1), DType::kFloat), g = c.grad();
  const auto product = [&](Endpoint x, Endpoint y, bool tx, bool ty) {
    return c.Op("MatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
  };
  const Endpoint ga = ta ? product(b, g, tb, true) : product(g, b, false, !tb);
  const Endpoint gb = tb ? product(g, a, true, ta) : product(a, g, !ta, false);
  c.set_input_grad(0, c.Cast(ga, c.input(0).dtype()));
  c.set_input_grad(1, c.Cast(gb, c.input(1).dtype()));
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseMatMul)
    .Input("a: Ta")
    .Input("b: Tb")
    .Output("product: float")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .Attr("a_is_sparse: bool = false")
    .Attr("b_is_sparse: bool = false")
    .Attr("Ta: {float, bfloat16} = float")
    .Attr("Tb: {float, bfloat16} = float")
    .Shape(SparseMatMulShape)
    .Gradient(SparseMatMulGradient)
    .Summary("The product of two matrices that may hold many zeros");

MILLRACE_KERNEL(SparseMatMul, kCpu, SparseMatMulKernel);

}  // namespace millrace
