// MatMul on a GPU, by cuBLAS.
#include "millrace/ops/kernels/cuda/gpu_product.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class CudaMatMulKernel : public Kernel {
 public:
  explicit CudaMatMulKernel(KernelInit& init) : product_(GpuProduct::Of(init.input_type(0), init.output_type(0))) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
    if (!product_) FailDType(init, init.output_type(0));
    // Without the library, an error before the first step, which names this node.
    if (const Status status = Cublas::Get().status(); !status.ok()) init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const GemmShape shape, ShapeOfProduct(ctx.input(0), ctx.input(1), transpose_a_, transpose_b_));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* a, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* b, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * product, call.Output(0, Shape({shape.m, shape.n})));
    if (product->num_elements() == 0) return absl::OkStatus();
    return product_->Run(call, shape, a, b, product->raw_data(), {});
  }

 private:
  const std::optional<GpuProduct> product_;
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

MILLRACE_KERNEL_OF(MatMul, kCuda, ({"T", CudaFloats()}), CudaMatMulKernel);

}  // namespace
}  // namespace millrace
