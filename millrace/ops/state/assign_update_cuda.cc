// AssignAddVariableOp and AssignSubVariableOp on a GPU.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

template <cuda::BinaryFn kFn>
class CudaAssignUpdateKernel : public Kernel {
 public:
  explicit CudaAssignUpdateKernel(KernelInit& init) : dtype_(init.input_type(1)), type_(CudaElementType(dtype_)) {
    if (!type_) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const void* by, call.Input(1));
    const auto update = [&](const Tensor& old_value, Tensor* new_value) -> Status {
      if (old_value.shape() != ctx.input(1).shape()) {
        return InvalidArgument("cannot update variable ", variable->name(), " of shape ", old_value.shape().ToString(),
                               " with a value of shape ", ctx.input(1).shape().ToString());
      }
      MR_ASSIGN_OR_RETURN(const void* from, call.Memory(old_value));
      MR_ASSIGN_OR_RETURN(void* to, call.Memory(*new_value));
      return call.Launched("LaunchBinary", cuda::LaunchBinary(kFn, *type_, PlanSameShape(old_value.num_elements()),
                                                              from, by, to, call.stream()));
    };
    return ChangeState(ctx, [&](VariableUpdate* by) { return variable->UpdateDense(update, by); });
  }

 private:
  const DType dtype_;
  const std::optional<cuda::ElementType> type_;
};

MILLRACE_KERNEL(AssignAddVariableOp, kCuda, CudaAssignUpdateKernel<cuda::BinaryFn::kAdd>);
MILLRACE_KERNEL(AssignSubVariableOp, kCuda, CudaAssignUpdateKernel<cuda::BinaryFn::kSub>);

}  // namespace
}  // namespace millrace
