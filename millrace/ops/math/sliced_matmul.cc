// _SlicedMatMul: a slice of a matrix product, computed without the rest. Needed for the gradient of a concatenation
// that is multiplied. Created by a graph pass from MatMul and Slice.
#include <atomic>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/slice_bounds.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status SlicedMatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool ta, c.Attr<bool>("transpose_a"));
  MR_ASSIGN_OR_RETURN(const bool tb, c.Attr<bool>("transpose_b"));
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  PartialShape product = PartialShape::UnknownOfRank(2);
  product.set_dim(0, a.dim(ta ? 1 : 0));
  product.set_dim(1, b.dim(tb ? 0 : 1));
  return SetSlicedShape(c, product, 2, 3);
}

MILLRACE_OP(_SlicedMatMul)
    .Summary("Fused MatMul and Slice.")
    .Input("a: T")
    .Input("b: T")
    .Input("begin: Index")
    .Input("size: Index")
    .Output("output: T")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .Attr("T: {float}")
    .Attr("Index: {int32, int64}")
    .Shape(SlicedMatMulShape)
    .NotDifferentiable();

class SlicedMatMulKernel : public Kernel {
 public:
  explicit SlicedMatMulKernel(KernelInit& init) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
    if (init.output_type(0) != DType::kFloat) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(0);
    const Tensor& b = ctx.input(1);
    MR_ASSIGN_OR_RETURN(GemmShape shape, ShapeOfProduct(a, b, transpose_a_, transpose_b_));
    IntList begin;
    MR_ASSIGN_OR_RETURN(const Shape box, SlicedShape(Shape({shape.m, shape.n}), ctx.input(2), ctx.input(3), &begin));
    shape.m = box.dim(0);
    shape.n = box.dim(1);
    if (transpose_a_) shape.a_stride = a.dim(1);
    if (!transpose_b_) shape.b_stride = b.dim(1);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, box));
    if (out->num_elements() == 0) return absl::OkStatus();
    const Gemm* gemm = last_.load(std::memory_order_acquire);
    if (gemm == nullptr || !(gemm->shape() == shape)) {
      gemm = Gemm::Get(shape);
      last_.store(gemm, std::memory_order_release);
    }
    if (gemm->runs_long()) ctx.HandOver();
    return gemm->Run(ctx.device()->intra_op_pool(), a.data<float>() + begin[0] * (transpose_a_ ? 1 : a.dim(1)),
                     b.data<float>() + begin[1] * (transpose_b_ ? b.dim(1) : 1), out->data<float>());
  }

 private:
  bool transpose_a_ = false;
  bool transpose_b_ = false;
  std::atomic<const Gemm*> last_{nullptr};
};

MILLRACE_KERNEL(_SlicedMatMul, kCpu, SlicedMatMulKernel);

}  // namespace
}  // namespace millrace
