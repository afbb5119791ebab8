// ResourceApplyGradientDescent on a GPU. The learning rate stays on the device, so that the host does not wait for it.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class CudaGradientDescentKernel : public Kernel {
 public:
  explicit CudaGradientDescentKernel(KernelInit& init) : dtype_(init.input_type(2)), type_(CudaElementType(dtype_)) {
    if (!type_ || IsInteger(*type_)) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    CudaCall call(ctx);
    const Tensor& alpha = ctx.input(1);
    const Tensor& delta = ctx.input(2);
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    if (alpha.rank() != 0) {
      return InvalidArgument("alpha is not a scalar: ", alpha.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const void* rate, call.Input(1));
    MR_ASSIGN_OR_RETURN(const void* by, call.Input(2));
    const auto update = [&](const Tensor& old_value, Tensor* new_value) -> Status {
      if (old_value.shape() != delta.shape()) {
        return InvalidArgument("var and delta do not have the same shape: ", old_value.shape().ToString(), " ",
                               delta.shape().ToString());
      }
      MR_ASSIGN_OR_RETURN(const void* from, call.Memory(old_value));
      MR_ASSIGN_OR_RETURN(void* to, call.Memory(*new_value));
      return call.Launched("LaunchDescend",
                           cuda::LaunchDescend(*type_, old_value.num_elements(), from, rate, by, to, call.stream()));
    };
    return ChangeState(ctx, [&](VariableUpdate* by) { return variable->UpdateDense(update, by); });
  }

 private:
  static bool IsInteger(cuda::ElementType type) {
    return type == cuda::ElementType::kInt8 || type == cuda::ElementType::kInt16 || type == cuda::ElementType::kInt32 ||
           type == cuda::ElementType::kInt64;
  }

  const DType dtype_;
  const std::optional<cuda::ElementType> type_;
};

MILLRACE_KERNEL_OF(ResourceApplyGradientDescent, kCuda, ({"T", CudaFloats()}), CudaGradientDescentKernel);

}  // namespace
}  // namespace millrace
