// AssignAdd, AssignSub and their resource variants on a GPU.
#include "absl/strings/match.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class CudaAssignUpdateKernel : public Kernel {
 public:
  explicit CudaAssignUpdateKernel(KernelInit& init) : dtype_(init.input_type(1)) {
    const ElementwiseProgram program{.functor = absl::StartsWith(init.node().type(), "AssignAdd") ? "AddFn" : "SubFn",
                                     .arity = 2,
                                     .inputs = {dtype_, dtype_},
                                     .output = dtype_};
    StatusOr<cudaKernel_t> kernel =
        CompiledKernel(program.Text(), ElementwiseProgram::kKernel, CudaDevice::GpuOf(init.device())->ordinal());
    if (kernel.ok()) {
      kernel_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
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
      int64_t n = old_value.num_elements();
      if (n == 0) return absl::OkStatus();
      int moves = 1;
      std::vector<void*> arguments = {&n, &from, &moves, &by, &moves, &to};
      return call.LaunchOverElements(ctx.node().type(), kernel_, n, arguments);
    };
    MR_RETURN_IF_ERROR(ChangeState(ctx, [&](VariableUpdate* by) { return variable->UpdateDense(update, by); }));
    ForwardReference(ctx);
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  cudaKernel_t kernel_ = nullptr;
};

std::vector<DType> Types() {
  std::vector<DType> types = CudaNumbers();
  types.push_back(DType::kInt32);
  return types;
}

MILLRACE_KERNEL_OF(AssignAdd, kCuda, ({"T", Types()}), CudaAssignUpdateKernel);
MILLRACE_KERNEL_OF(AssignSub, kCuda, ({"T", Types()}), CudaAssignUpdateKernel);
MILLRACE_KERNEL_OF(AssignAddVariableOp, kCuda, ({"dtype", Types()}), CudaAssignUpdateKernel);
MILLRACE_KERNEL_OF(AssignSubVariableOp, kCuda, ({"dtype", Types()}), CudaAssignUpdateKernel);

}  // namespace
}  // namespace millrace
