// AssignAdd, AssignSub and their resource variants.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Elements of one piece of a parallel update.
constexpr int64_t kGrain = 32768;

struct AddTo {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct SubtractFrom {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a - b);
  }
};

// A separate function, because the compiler would reload pointers captured by a closure. The old and the new value may
// alias element by element.
template <typename Op, typename T>
void CombineRun(const T* a, const T* b, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = Op::Apply(a[i], b[i]);
}

template <typename Op, typename T>
Status Combine(KernelContext& ctx, const Tensor& old_value, const Tensor& by, Tensor* new_value) {
  const T* const a = old_value.data<T>();
  const T* const b = by.data<T>();
  T* const out = new_value->data<T>();
  ctx.ParallelFor(by.num_elements(), kGrain,
                  [&](int64_t begin, int64_t end) { CombineRun<Op>(a + begin, b + begin, out + begin, end - begin); });
  return absl::OkStatus();
}

template <typename Op>
class AssignUpdateKernel : public Kernel {
 public:
  explicit AssignUpdateKernel(KernelInit& init) : dtype_(init.input_type(1)) {
    const bool known = DispatchType(NumberTypes{}, dtype_,
                                    [this](auto tag) { combine_ = &Combine<Op, typename decltype(tag)::type>; });
    if (!known) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    const Tensor& by = ctx.input(1);
    MR_RETURN_IF_ERROR(ChangeState(ctx, [&](VariableUpdate* update) {
      return variable->UpdateDense(
          [&](const Tensor& old_value, Tensor* new_value) -> Status {
            if (old_value.shape() != by.shape()) {
              return InvalidArgument("cannot update variable ", variable->name(), " of shape ",
                                     old_value.shape().ToString(), " with a value of shape ", by.shape().ToString());
            }
            return combine_(ctx, old_value, by, new_value);
          },
          update);
    }));
    ForwardReference(ctx);
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  Status (*combine_)(KernelContext&, const Tensor&, const Tensor&, Tensor*) = nullptr;
};

Status AssignUpdateShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape merged, VariableShapeOf(c, 0).MergeWith(c.input(1)));
  if (c.num_outputs() > 0) c.set_output(0, std::move(merged));
  return absl::OkStatus();
}

MILLRACE_OP(AssignAdd)
    .Input("ref: Ref(T)")
    .Input("value: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(AssignUpdateShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds value to a variable.");

MILLRACE_OP(AssignSub)
    .Input("ref: Ref(T)")
    .Input("value: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(AssignUpdateShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts value from a variable.");

MILLRACE_OP(AssignAddVariableOp)
    .Input("resource: resource")
    .Input("value: dtype")
    .Attr("dtype: type")
    .Stateful()
    .Shape(AssignUpdateShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds value to a resource variable.");

MILLRACE_OP(AssignSubVariableOp)
    .Input("resource: resource")
    .Input("value: dtype")
    .Attr("dtype: type")
    .Stateful()
    .Shape(AssignUpdateShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts value from a resource variable.");

MILLRACE_KERNEL(AssignAdd, kCpu, AssignUpdateKernel<AddTo>);
MILLRACE_KERNEL(AssignSub, kCpu, AssignUpdateKernel<SubtractFrom>);
MILLRACE_KERNEL(AssignAddVariableOp, kCpu, AssignUpdateKernel<AddTo>);
MILLRACE_KERNEL(AssignSubVariableOp, kCpu, AssignUpdateKernel<SubtractFrom>);

}  // namespace
}  // namespace millrace
