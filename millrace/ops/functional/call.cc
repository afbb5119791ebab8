// PartitionedCall and related ops: run a function.
#include "millrace/graph/device_name.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/function_call.h"
#include "millrace/ops/functional/functional_shapes.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Calls are inlined before gradients are taken; what remains is recursive, and so is its gradient.
Status CallGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const auto f, c.Attr<pb::NameAttrList>("f"));
  std::vector<Endpoint> inputs(c.node()->inputs().begin(), c.node()->inputs().end());
  std::vector<DType> types(c.node()->input_types().begin(), c.node()->input_types().end());
  for (int i = 0; i < c.num_outputs(); ++i) inputs.push_back(c.grad(i));
  pb::AttrValue function;
  *function.mutable_func() = f;
  Node* gradient = c.AddNode("SymbolicGradient", inputs, {{"f", function}, {"Tout", types}});
  if (gradient == nullptr) return c.status();
  for (int i = 0; i < c.num_inputs(); ++i) c.set_input_grad(i, gradient->output(i));
  return c.status();
}

// Most calls are inlined before a plan is made (FunctionInliner); this runs the rest, mainly recursive calls.
class CallKernel : public AsyncKernel {
 public:
  explicit CallKernel(KernelInit& init) {
    pb::NameAttrList f;
    init.Attr("f", &f);
    if (init.node().is_type("SymbolicGradient")) {
      pb::NameAttrList gradient;
      gradient.set_name("SymbolicGradient");
      *(*gradient.mutable_attr())["f"].mutable_func() = f;
      f = gradient;
    }
    function_.Set(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override { RunAsNode(ctx, function_, 0, std::move(done)); }

 private:
  NamedFunction function_;
};

// Supports targets on this task only.
class RemoteCallKernel : public AsyncKernel {
 public:
  explicit RemoteCallKernel(KernelInit& init) {
    pb::NameAttrList f;
    init.Attr("f", &f);
    function_.Set(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    if (Status status = CheckTarget(ctx); !status.ok()) {
      done(status);
      return;
    }
    RunAsNode(ctx, function_, 1, std::move(done));
  }

 private:
  static Status CheckTarget(const KernelContext& ctx) {
    const Tensor& target = ctx.input(0);
    if (target.num_elements() != 1)
      return InvalidArgument("target must be a scalar, but it has shape ", target.shape().ToString());
    MR_ASSIGN_OR_RETURN(const DeviceName wanted, DeviceName::Parse(target.scalar<std::string>()));
    MR_ASSIGN_OR_RETURN(const DeviceName here, DeviceName::Parse(ctx.device()->name()));
    if ((wanted.job && wanted.job != here.job) || (wanted.replica && wanted.replica != here.replica) ||
        (wanted.task && wanted.task != here.task) || (wanted.type && wanted.type != here.type)) {
      return InvalidArgument("target '", target.scalar<std::string>(), "' is not on this task, ", ctx.device()->name());
    }
    return absl::OkStatus();
  }

  NamedFunction function_;
};

MILLRACE_OP(PartitionedCall)
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("f: func")
    .Attr("config: string = ''")
    .Attr("config_proto: string = ''")
    .Attr("executor_type: string = ''")
    .Shape(DeclaredShapes)
    .Gradient(CallGradient)
    .Call(CallKind::kFunction)
    .Summary("Calls a function without side effects.");

MILLRACE_OP(StatefulPartitionedCall)
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("f: func")
    .Attr("config: string = ''")
    .Attr("config_proto: string = ''")
    .Attr("executor_type: string = ''")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(CallGradient)
    .Call(CallKind::kFunction)
    .Summary("Calls a function.");

MILLRACE_OP(SymbolicGradient)
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("f: func")
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Call(CallKind::kGradient)
    .Summary("The gradient of a function: takes its arguments and the gradients of its results.");

MILLRACE_OP(RemoteCall)
    .Input("target: string")
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("f: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Summary("Calls a function on the device `target`.");

MILLRACE_KERNEL(PartitionedCall, kCpu, CallKernel);
MILLRACE_KERNEL(StatefulPartitionedCall, kCpu, CallKernel);
MILLRACE_KERNEL(SymbolicGradient, kCpu, CallKernel);
MILLRACE_KERNEL(RemoteCall, kCpu, RemoteCallKernel);

}  // namespace
}  // namespace millrace
