// Add, AddV2, Sub and Mul on a GPU.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

template <cuda::BinaryFn kFn>
class CudaBinaryKernel : public Kernel {
 public:
  explicit CudaBinaryKernel(KernelInit& init) : type_(CudaElementType(init.output_type(0))) {
    if (!type_) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    CudaCall call(ctx);
    Shape shape;
    MR_ASSIGN_OR_RETURN(const cuda::BinaryPlan plan, PlanBinary(ctx.input(0).shape(), ctx.input(1).shape(), &shape));
    MR_ASSIGN_OR_RETURN(const void* a, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* b, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    return call.Launched("LaunchBinary", cuda::LaunchBinary(kFn, *type_, plan, a, b, out->raw_data(), call.stream()));
  }

 private:
  const std::optional<cuda::ElementType> type_;
};

MILLRACE_KERNEL(Add, kCuda, CudaBinaryKernel<cuda::BinaryFn::kAdd>);
MILLRACE_KERNEL(AddV2, kCuda, CudaBinaryKernel<cuda::BinaryFn::kAdd>);
MILLRACE_KERNEL(Sub, kCuda, CudaBinaryKernel<cuda::BinaryFn::kSub>);
MILLRACE_KERNEL(Mul, kCuda, CudaBinaryKernel<cuda::BinaryFn::kMul>);

}  // namespace
}  // namespace millrace
