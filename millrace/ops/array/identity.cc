// Identity and the ops that differ from it only in what the graph makes of them.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Forwards every input, sharing its memory, on any device.
class IdentityKernel : public Kernel {
 public:
  explicit IdentityKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_outputs(); ++i) ctx.SetOutput(i, ctx.input(i));
    return absl::OkStatus();
  }
};

class GuaranteeConstKernel : public IdentityKernel {
 public:
  using IdentityKernel::IdentityKernel;
  Status Compute(KernelContext& ctx) override {
    if (ctx.input(0).dtype() == DType::kResource) {
      return InvalidArgument("Input tensor cannot be a resource variable handle.");
    }
    return IdentityKernel::Compute(ctx);
  }
};

class NoOpKernel : public Kernel {
 public:
  explicit NoOpKernel(KernelInit&) {}
  Status Compute(KernelContext&) override { return absl::OkStatus(); }
};

Status IdentityShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(i));
  return absl::OkStatus();
}

Status IdentityGradient(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_input_grad(i, c.raw_grad(i));
  return absl::OkStatus();
}

Status ForbiddenGradient(GradientContext& c) {
  return Unimplemented("the gradient through '", c.node()->name(), "' (", c.node()->type(),
                       ") is disabled: ", c.AttrOr<std::string>("message", ""));
}

MILLRACE_OP(Identity)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(IdentityShape)
    .Gradient(IdentityGradient)
    .Ints(UnchangedInts)
    .Trait(OpTrait::kForwards)
    .Summary("Forwards a tensor.");
MILLRACE_KERNEL(Identity, kCpu, IdentityKernel);
MILLRACE_HOST_KERNEL(Identity, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Identity, kCuda, IdentityKernel);

MILLRACE_OP(IdentityN)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 1")
    .Shape(IdentityShape)
    .Gradient(IdentityGradient)
    .Summary("Forwards several tensors.");
MILLRACE_KERNEL(IdentityN, kCpu, IdentityKernel);
MILLRACE_KERNEL(IdentityN, kCuda, IdentityKernel);

MILLRACE_OP(StopGradient)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(IdentityShape)
    .NotDifferentiable()
    .Ints(UnchangedInts)
    .Trait(OpTrait::kForwards)
    .Summary("Forwards a tensor; no gradient flows through it.");
MILLRACE_KERNEL(StopGradient, kCpu, IdentityKernel);
MILLRACE_HOST_KERNEL(StopGradient, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(StopGradient, kCuda, IdentityKernel);

MILLRACE_OP(PreventGradient)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("message: string = ''")
    .Shape(IdentityShape)
    .Gradient(ForbiddenGradient)
    .Trait(OpTrait::kForwards)
    .Summary("Forwards a tensor; taking its gradient is an error.");
MILLRACE_KERNEL(PreventGradient, kCpu, IdentityKernel);
MILLRACE_HOST_KERNEL(PreventGradient, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(PreventGradient, kCuda, IdentityKernel);

MILLRACE_OP(GuaranteeConst)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Stateful()
    .Shape(IdentityShape)
    .NotDifferentiable()
    .Summary("Forwards a tensor; declares that it is constant.");
MILLRACE_KERNEL(GuaranteeConst, kCpu, GuaranteeConstKernel);

MILLRACE_OP(Snapshot)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(IdentityShape)
    .Gradient(IdentityGradient)
    .Summary("A copy of a tensor.");
MILLRACE_KERNEL(Snapshot, kCpu, IdentityKernel);
MILLRACE_KERNEL(Snapshot, kCuda, IdentityKernel);
MILLRACE_HOST_KERNEL(Snapshot, kCuda, "T", DType::kInt32);

MILLRACE_OP(RefIdentity)
    .Input("input: Ref(T)")
    .Output("output: Ref(T)")
    .Attr("T: type")
    .AllowsUninitializedInput()
    .Shape(IdentityShape)
    .Gradient(IdentityGradient)
    .Summary("Forwards a reference to a variable.");
MILLRACE_KERNEL(RefIdentity, kCpu, IdentityKernel);

MILLRACE_OP(NoOp).Shape(NoOutputs).NotDifferentiable().Summary("A no-op, for control dependencies.");
MILLRACE_KERNEL(NoOp, kCpu, NoOpKernel);
MILLRACE_KERNEL(NoOp, kCuda, NoOpKernel);

}  // namespace
}  // namespace millrace
