// If and Case: call one of several functions.
#include <deque>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/function_call.h"
#include "millrace/ops/functional/functional_shapes.h"
#include "millrace/ops/functional/to_bool.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Gradients are taken of the lowered form; what could not be lowered is recursive.
Status BranchNotExpanded(GradientContext& c) {
  return Unimplemented("the gradient of a ", c.node()->type(), " within a function that calls itself is not supported");
}

class IfKernel : public AsyncKernel {
 public:
  explicit IfKernel(KernelInit& init) {
    pb::NameAttrList f;
    init.Attr("then_branch", &f);
    then_.Set(f);
    init.Attr("else_branch", &f);
    else_.Set(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    const StatusOr<bool> truth = ToBool(ctx.input(0));
    if (!truth.ok()) {
      done(truth.status());
      return;
    }
    RunAsNode(ctx, *truth ? then_ : else_, 1, std::move(done));
  }

 private:
  NamedFunction then_, else_;
};

class CaseKernel : public AsyncKernel {
 public:
  explicit CaseKernel(KernelInit& init) {
    const pb::AttrValue* branches = init.node().FindAttr("branches");
    if (branches == nullptr || branches->list().func_size() == 0) {
      init.Fail(InvalidArgument("branches must name at least one function"));
      return;
    }
    for (const pb::NameAttrList& f : branches->list().func()) branches_.emplace_back(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    const Tensor& index = ctx.input(0);
    if (index.num_elements() != 1) {
      done(InvalidArgument("branch_index must be a scalar, but it has shape ", index.shape().ToString()));
      return;
    }
    const int32_t i = index.scalar<int32_t>();
    const bool in_range = i >= 0 && i < static_cast<int64_t>(branches_.size());
    RunAsNode(ctx, in_range ? branches_[i] : branches_.back(), 1, std::move(done));
  }

 private:
  std::deque<NamedFunction> branches_;
};

MILLRACE_OP(If)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Attr("output_shapes: list(shape) = []")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(BranchNotExpanded)
    .Call(CallKind::kIf)
    .Summary("Calls then_branch or else_branch.");

MILLRACE_OP(StatelessIf)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Attr("output_shapes: list(shape) = []")
    .Shape(DeclaredShapes)
    .Gradient(BranchNotExpanded)
    .Call(CallKind::kIf)
    .Summary("If with branches without side effects.");

MILLRACE_OP(_If)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(BranchNotExpanded)
    .Call(CallKind::kIf)
    .Summary("An old form of If.");

MILLRACE_OP(Case)
    .Input("branch_index: int32")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("branches: list(func) >= 1")
    .Attr("output_shapes: list(shape) = []")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(BranchNotExpanded)
    .Call(CallKind::kCase)
    .Summary("Calls branch branch_index, or the last one if it is out of range.");

MILLRACE_OP(StatelessCase)
    .Input("branch_index: int32")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("branches: list(func) >= 1")
    .Attr("output_shapes: list(shape) = []")
    .Shape(DeclaredShapes)
    .Gradient(BranchNotExpanded)
    .Call(CallKind::kCase)
    .Summary("Case with branches without side effects.");

MILLRACE_KERNEL(If, kCpu, IfKernel);
MILLRACE_KERNEL(StatelessIf, kCpu, IfKernel);
MILLRACE_KERNEL(_If, kCpu, IfKernel);
MILLRACE_KERNEL(Case, kCpu, CaseKernel);
MILLRACE_KERNEL(StatelessCase, kCpu, CaseKernel);

}  // namespace
}  // namespace millrace
