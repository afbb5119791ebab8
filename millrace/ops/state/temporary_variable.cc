// TemporaryVariable: a variable that lives for a part of one step.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/step_resources.h"

namespace millrace {
namespace {

std::string NameInFrame(const KernelContext& ctx, absl::string_view name) {
  return absl::StrCat(name, "/", ctx.frame_id(), "/", ctx.iteration());
}

class TemporaryVariableKernel : public Kernel {
 public:
  explicit TemporaryVariableKernel(KernelInit& init) {
    init.Attr("dtype", &dtype_);
    init.Attr("shape", &shape_);
    init.Attr("var_name", &name_);
    if (name_.empty()) name_ = init.node().name();
    if (init.status().ok() && !IsPlain(dtype_)) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    if (ctx.step().step_resources == nullptr) return Internal("the step keeps no resources");
    MR_ASSIGN_OR_RETURN(Tensor value, Tensor::Make(dtype_, shape_));
    std::memset(value.raw_data(), 0, value.TotalBytes());
    ResourceHandle handle;
    handle.name = NameInFrame(ctx, name_);
    auto variable = MakeRef<Variable>(name_, dtype_, PartialShape(shape_));
    MR_RETURN_IF_ERROR(variable->Assign(std::move(value)));
    MR_RETURN_IF_ERROR(ctx.step().step_resources->Create(handle.name, variable));
    handle.resource = variable;
    ctx.SetOutput(0, MakeHandleTensor(RefType(dtype_), std::move(handle)));
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  std::string name_;
};

class DestroyTemporaryVariableKernel : public Kernel {
 public:
  explicit DestroyTemporaryVariableKernel(KernelInit& init) {
    init.Attr("T", &dtype_);
    init.Attr("var_name", &name_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    if (!ctx.step().step_resources->Delete(NameInFrame(ctx, name_))) {
      return NotFound("there is no temporary variable '", name_, "' in this step");
    }
    MR_ASSIGN_OR_RETURN(Tensor value, variable->Read());
    ctx.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
  std::string name_;
};

MILLRACE_OP(TemporaryVariable)
    .Output("ref: Ref(dtype)")
    .Attr("shape: shape")
    .Attr("dtype: type")
    .Attr("var_name: string = ''")
    .Stateful()
    .Shape(AttrShape)
    .NotDifferentiable()
    .Summary("A variable that lives until DestroyTemporaryVariable in the same step.");

MILLRACE_OP(DestroyTemporaryVariable)
    .Input("ref: Ref(T)")
    .Output("value: T")
    .Attr("T: type")
    .Attr("var_name: string")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Returns the last value of a temporary variable and destroys it.");

MILLRACE_KERNEL(TemporaryVariable, kCpu, TemporaryVariableKernel);
MILLRACE_KERNEL(DestroyTemporaryVariable, kCpu, DestroyTemporaryVariableKernel);

}  // namespace
}  // namespace millrace
