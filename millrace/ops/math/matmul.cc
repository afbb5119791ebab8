// MatMul: the product of two matrices.
#include <atomic>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/gemm.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status MatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool ta, c.Attr<bool>("transpose_a"));
  MR_ASSIGN_OR_RETURN(const bool tb, c.Attr<bool>("transpose_b"));
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  const int64_t inner_a = a.dim(ta ? 0 : 1), inner_b = b.dim(tb ? 1 : 0);
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
    return InvalidArgument("Matrix size-incompatible: In[0]: ", a.ToString(), ", In[1]: ", b.ToString(),
                           ": inner dimensions of a matrix product differ: ", inner_a, " and ", inner_b, ", of ",
                           a.ToString(), ta ? " (transposed)" : "", " and ", b.ToString(), tb ? " (transposed)" : "");
  }
  c.set_output(0, {a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)});
  return absl::OkStatus();
}

Status MatMulGradient(GradientContext& c) {
  const bool ta = c.AttrOr("transpose_a", false), tb = c.AttrOr("transpose_b", false);
  const Endpoint g = c.grad();
  const Endpoint a = c.Conj(c.input(0)), b = c.Conj(c.input(1));
  const auto product = [&](Endpoint x, bool tx, Endpoint y, bool ty, const char* which) {
    return c.Op("MatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}, {which, true}});
  };
  c.set_input_grad(0, ta ? product(b, tb, g, true, "grad_a") : product(g, false, b, !tb, "grad_a"));
  c.set_input_grad(1, tb ? product(g, true, a, ta, "grad_b") : product(a, !ta, g, false, "grad_b"));
  return absl::OkStatus();
}

MILLRACE_OP(MatMul)
    .Summary("The product of two matrices, each optionally transposed.")
    .Input("a: T")
    .Input("b: T")
    .Output("product: T")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .Attr(
        "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, "
        "complex128}")
    .Attr("grad_a: bool = false")
    .Attr("grad_b: bool = false")
    .Shape(MatMulShape)
    .Gradient(MatMulGradient);

class MatMulKernel : public Kernel {
 public:
  explicit MatMulKernel(KernelInit& init) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
    if (!HasMatrixProduct(init.output_type(0))) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(0);
    const Tensor& b = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GemmShape shape, ShapeOfProduct(a, b, transpose_a_, transpose_b_));
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, Shape({shape.m, shape.n})));
    if (product->num_elements() == 0) return absl::OkStatus();
    if (product->dtype() != DType::kFloat) {
      return MatrixProducts(ctx, shape, {{0, 0}}, a, b, product);
    }
    // Most nodes see one shape only, so cache its plan.
    const Gemm* gemm = last_.load(std::memory_order_acquire);
    if (gemm == nullptr || !(gemm->shape() == shape)) {
      gemm = Gemm::Get(shape);
      last_.store(gemm, std::memory_order_release);
    }
    if (gemm->runs_long()) ctx.HandOver();
    return gemm->Run(ctx.device()->intra_op_pool(), a.data<float>(), b.data<float>(), product->data<float>());
  }

 private:
  bool transpose_a_ = false;
  bool transpose_b_ = false;
  std::atomic<const Gemm*> last_{nullptr};
};

MILLRACE_KERNEL(MatMul, kCpu, MatMulKernel);

}  // namespace
}  // namespace millrace
