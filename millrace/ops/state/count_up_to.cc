// CountUpTo: a counter that fails once it has reached its limit.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class CountUpToKernel : public Kernel {
 public:
  explicit CountUpToKernel(KernelInit& init) {
    init.Attr("limit", &limit_);
    init.Attr("T", &dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, Shape()));
    return ChangeState(ctx, [&](VariableUpdate* by) {
      return variable->UpdateDense(
          [&](const Tensor& old_value, Tensor* new_value) -> Status {
            if (old_value.rank() != 0) {
              return InvalidArgument("the counter ", variable->name(), " must be a scalar, but it has shape ",
                                     old_value.shape().ToString());
            }
            Status status;
            DispatchType(IndexTypes{}, dtype_, [&](auto tag) {
              using T = typename decltype(tag)::type;
              const T now = old_value.scalar<T>();
              if (now >= limit_) {
                status = OutOfRange("Reached limit of ", limit_);
                return;
              }
              output->scalar<T>() = now;
              new_value->scalar<T>() = static_cast<T>(now + 1);
            });
            return status;
          },
          by);
    });
  }

 private:
  int64_t limit_ = 0;
  DType dtype_ = DType::kInvalid;
};

MILLRACE_OP(CountUpTo)
    .Input("ref: Ref(T)")
    .Output("output: T")
    .Attr("limit: int")
    .Attr("T: {int32, int64}")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Increments a counter and returns its previous value; OUT_OF_RANGE once it has reached limit.");

MILLRACE_OP(ResourceCountUpTo)
    .Input("resource: resource")
    .Output("output: T")
    .Attr("limit: int")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("CountUpTo for a resource variable.");

MILLRACE_KERNEL(CountUpTo, kCpu, CountUpToKernel);
MILLRACE_KERNEL(ResourceCountUpTo, kCpu, CountUpToKernel);

}  // namespace
}  // namespace millrace
