// _FusedMatMul: a product, a bias and an activation in one pass over each tile while it is in the cache. Created by a
// graph pass from MatMul, BiasAdd and an activation.
#include <atomic>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/fused/fused_activation.h"
#include "millrace/ops/kernels/gemm.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status FusedMatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool ta, c.Attr<bool>("transpose_a"));
  MR_ASSIGN_OR_RETURN(const bool tb, c.Attr<bool>("transpose_b"));
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  c.set_output(0, {a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)});
  return absl::OkStatus();
}

MILLRACE_OP(_FusedMatMul)
    .Summary("Fused MatMul, BiasAdd and activation.")
    .Input("a: T")
    .Input("b: T")
    .Input("args: num_args * T")
    .Output("product: T")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .Attr("T: {bfloat16, half, float}")
    .Attr("num_args: int >= 0")
    .Attr("fused_ops: list(string) = []")
    .Attr("epsilon: float = 0.0001")
    .Attr("leakyrelu_alpha: float = 0.2")
    .Shape(FusedMatMulShape)
    .NotDifferentiable();

class FusedMatMulKernel : public Kernel {
 public:
  explicit FusedMatMulKernel(KernelInit& init) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
    init.Attr("leakyrelu_alpha", &alpha_);
    std::vector<std::string> ops;
    init.Attr("fused_ops", &ops);
    int64_t num_args = 0;
    init.Attr("num_args", &num_args);
    if (ops.empty() || ops[0] != "BiasAdd" || ops.size() > 2 || num_args != 1) {
      init.Fail(Unimplemented("fused_ops must be BiasAdd, or BiasAdd and an activation, with one argument"));
      return;
    }
    if (ops.size() == 2) {
      StatusOr<Activation> activation = ParseActivation(ops[1]);
      init.Fail(activation.status());
      activation_ = activation.value_or(Activation::kNone);
    }
    const DType t = init.output_type(0);
    if (t != DType::kFloat && t != DType::kHalf && t != DType::kBFloat16) FailDType(init, t);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(0);
    const Tensor& b = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GemmShape shape, ShapeOfProduct(a, b, transpose_a_, transpose_b_));
    if (ctx.input(2).rank() != 1 || ctx.input(2).dim(0) != shape.n) {
      return InvalidArgument("the bias must be a vector of ", shape.n, " elements, but has shape ",
                             ctx.input(2).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, Shape({shape.m, shape.n})));
    if (product->num_elements() == 0) return absl::OkStatus();
    if (product->dtype() == DType::kFloat) return Multiply(ctx, shape, a, b, ctx.input(2), product);
    MR_ASSIGN_OR_RETURN(const Tensor left, AsFloat(ctx, a));
    MR_ASSIGN_OR_RETURN(const Tensor right, AsFloat(ctx, b));
    MR_ASSIGN_OR_RETURN(const Tensor bias, AsFloat(ctx, ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(DType::kFloat, product->shape()));
    MR_RETURN_IF_ERROR(Multiply(ctx, shape, left, right, bias, &wide));
    FromFloat(ctx, wide, product);
    return absl::OkStatus();
  }

 private:
  Status Multiply(KernelContext& ctx, const GemmShape& shape, const Tensor& a, const Tensor& b,
                  const Tensor& bias_tensor, Tensor* product) {
    const Gemm* gemm = last_.load(std::memory_order_acquire);
    if (gemm == nullptr || !(gemm->shape() == shape)) {
      gemm = Gemm::Get(shape);
      last_.store(gemm, std::memory_order_release);
    }
    const float* bias = bias_tensor.data<float>();
    if (gemm->runs_long()) ctx.HandOver();
    return gemm->Run(ctx.device()->intra_op_pool(), a.data<float>(), b.data<float>(), product->data<float>(),
                     [this, bias](const GemmTile& tile) {
                       for (int64_t r = 0; r < tile.rows; ++r) {
                         float* row = tile.data + r * tile.stride;
                         const float* add = bias + tile.col;
                         for (int64_t i = 0; i < tile.cols; ++i) row[i] += add[i];
                         Activate(activation_, alpha_, row, tile.cols);
                       }
                     });
  }

  bool transpose_a_ = false;
  bool transpose_b_ = false;
  float alpha_ = 0;
  Activation activation_ = Activation::kNone;
  std::atomic<const Gemm*> last_{nullptr};
};

MILLRACE_KERNEL(_FusedMatMul, kCpu, FusedMatMulKernel);

}  // namespace
}  // namespace millrace
