// TensorFlow 1's reference variables: VariableV2 and the ops that use it.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/ops/state/variable_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class RefVariableKernel : public Kernel {
 public:
  explicit RefVariableKernel(KernelInit& init) : source_(init) {
    if (init.status().ok() && !IsKnown(source_.dtype())) FailDType(init, source_.dtype());
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor handle, source_.Handle(ctx, RefType(source_.dtype())));
    ctx.SetOutput(0, std::move(handle));
    return absl::OkStatus();
  }

 private:
  VariableSource source_;
};

class AssignKernel : public Kernel {
 public:
  explicit AssignKernel(KernelInit& init) {
    init.Attr("T", &dtype_);
    init.Attr("validate_shape", &validate_shape_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    MR_RETURN_IF_ERROR(
        ChangeState(ctx, [&](VariableUpdate* by) { return variable->Assign(ctx.input(1), validate_shape_, by); }));
    ForwardReference(ctx);
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
  bool validate_shape_ = true;
};

class IsInitializedKernel : public Kernel {
 public:
  explicit IsInitializedKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, ctx.resource<Variable>(0));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, Shape()));
    output->scalar<bool>() = variable->IsInitialized();
    return absl::OkStatus();
  }
};

// The op Variable expresses an unknown shape as a scalar's.
Status LegacyVariableShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(AttrShape(c));
  if (c.outputs()[0].rank() == 0) c.set_output(0, PartialShape());
  return absl::OkStatus();
}

Status AssignShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool validate, c.Attr<bool>("validate_shape"));
  PartialShape shape = c.input(1);
  if (validate) {
    MR_ASSIGN_OR_RETURN(shape, c.input(0).MergeWith(c.input(1)));
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(VariableV2)
    .Output("ref: Ref(dtype)")
    .Attr("shape: shape")
    .Attr("dtype: type")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(AttrShape)
    .Trait(OpTrait::kReadsVariable)
    .Summary("A variable, by reference (TensorFlow 1).");

MILLRACE_OP(Variable)
    .Output("ref: Ref(dtype)")
    .Attr("shape: shape")
    .Attr("dtype: type")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(LegacyVariableShape)
    .Trait(OpTrait::kReadsVariable)
    .Summary("VariableV2 in which a scalar shape means unknown.");

MILLRACE_OP(Assign)
    .Input("ref: Ref(T)")
    .Input("value: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: type")
    .Attr("validate_shape: bool = true")
    .Attr("use_locking: bool = true")
    .AllowsUninitializedInput()
    .Shape(AssignShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Assigns a value to a variable.");

MILLRACE_OP(IsVariableInitialized)
    .Input("ref: Ref(dtype)")
    .Output("is_initialized: bool")
    .Attr("dtype: type")
    .AllowsUninitializedInput()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("True if a variable is initialized.");

MILLRACE_OP(VarIsInitializedOp)
    .Input("resource: resource")
    .Output("is_initialized: bool")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kReadsVariable)
    .Summary("True if a resource variable is initialized.");

MILLRACE_KERNEL(VariableV2, kCpu, RefVariableKernel);
MILLRACE_KERNEL(Variable, kCpu, RefVariableKernel);
MILLRACE_KERNEL(Assign, kCpu, AssignKernel);
MILLRACE_KERNEL(IsVariableInitialized, kCpu, IsInitializedKernel);
// The reference is in host memory, the value on the device.
MILLRACE_KERNEL(VariableV2, kCuda, RefVariableKernel);
MILLRACE_KERNEL(Variable, kCuda, RefVariableKernel);
MILLRACE_KERNEL(Assign, kCuda, AssignKernel);
MILLRACE_KERNEL(IsVariableInitialized, kCuda, IsInitializedKernel);
MILLRACE_HOST_MEMORY(IsVariableInitialized, "GPU", "is_initialized");
MILLRACE_KERNEL(VarIsInitializedOp, kCpu, IsInitializedKernel);
MILLRACE_KERNEL(VarIsInitializedOp, kCuda, IsInitializedKernel);
MILLRACE_HOST_MEMORY(VarIsInitializedOp, "GPU", "is_initialized");

}  // namespace
}  // namespace millrace
