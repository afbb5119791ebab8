// BatchMatMul and its later versions on a GPU, by cuBLAS.
#include "millrace/ops/kernels/cuda/gpu_product.h"
#include "millrace/ops/math/batch_matmul.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class CudaBatchMatMulKernel : public Kernel {
 public:
  explicit CudaBatchMatMulKernel(KernelInit& init)
      : op_(init), product_(GpuProduct::Of(init.input_type(0), init.output_type(0))) {
    if (!product_) FailDType(init, init.output_type(0));
    if (const Status status = Cublas::Get().status(); !status.ok()) init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const BatchMatMulOp::Call of, op_.Get(ctx));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* y, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * product, call.Output(0, of.result));
    if (product->num_elements() == 0) return absl::OkStatus();
    UniformBatches batches = SplitBatch(of);
    GemmShape shape = of.shape;
    if (!shape.transpose_a && batches.step_y == 0 && batches.step_x == 1 && batches.step_product == 1) {
      // One y for all x: their rows are those of one matrix.
      shape.m *= batches.count;
      batches.count = 1;
    }
    const int64_t size_x = of.shape.m * of.shape.k, size_y = of.shape.k * of.shape.n, size = of.shape.m * of.shape.n;
    const int64_t in = static_cast<int64_t>(SizeOf(ctx.input(0).dtype())),
                  out = static_cast<int64_t>(SizeOf(product->dtype()));
    for (const UniformBatches::Start& start : batches.starts) {
      MR_RETURN_IF_ERROR(product_->Run(call, shape, static_cast<const char*>(x) + start.x * size_x * in,
                                       static_cast<const char*>(y) + start.y * size_y * in,
                                       static_cast<char*>(product->raw_data()) + start.product * size * out,
                                       {.count = batches.count,
                                        .step_a = batches.step_x * size_x,
                                        .step_b = batches.step_y * size_y,
                                        .step_c = batches.step_product * size,
                                        .conjugate = true}));
    }
    return absl::OkStatus();
  }

 private:
  const BatchMatMulOp op_;
  const std::optional<GpuProduct> product_;
};

MILLRACE_KERNEL_OF(BatchMatMul, kCuda, ({"T", CudaFloats()}), CudaBatchMatMulKernel);
MILLRACE_KERNEL_OF(BatchMatMulV2, kCuda, ({"T", CudaFloats()}), CudaBatchMatMulKernel);

// Both operands of one type; that of the result is checked by the kernel.
[[maybe_unused]] const bool batch_matmul_v3_registered = [] {
  for (const DType dtype : CudaFloats()) {
    KernelRegistry::Global().Register(
        "BatchMatMulV3", kCuda,
        [](KernelInit& init) -> std::unique_ptr<Kernel> { return std::make_unique<CudaBatchMatMulKernel>(init); },
        {"Ta", {dtype}, "Tb", {dtype}});
  }
  return true;
}();

}  // namespace
}  // namespace millrace
