#include "millrace/ops/state/variable_access.h"

namespace millrace {
namespace {

Status ValueMissing(const ResourceHandle& handle) {
  return NotFound("Resource ", handle.container, "/", handle.name,
                  " does not exist: the variable was not initialized or has been deleted");
}

}  // namespace

StatusOr<RefPtr<Variable>> VariableInput(const KernelContext& ctx, int i, DType dtype) {
  MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, ctx.resource<Variable>(i));
  if (variable->dtype() != dtype) {
    return InvalidArgument("Trying to ", ctx.node().is_type("ReadVariableOp") ? "read" : "update",
                           " variable with wrong dtype. Expected ", DTypeName(variable->dtype()), " got ",
                           DTypeName(dtype), " (variable ", variable->name(), ")");
  }
  // Placement keeps them together; a client's own device requests may not.
  if (ABSL_PREDICT_FALSE(variable->on_device() == ctx.device()->shares_host_memory())) {
    return InvalidArgument("variable ", variable->name(), " is ", variable->on_device() ? "" : "not ",
                           "in the memory of a GPU, and ", ctx.device()->name(), " cannot use it there");
  }
  return variable;
}

StatusOr<Tensor> VariableValue(const KernelContext& ctx, int i, DType dtype) {
  MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, i, dtype));
  StatusOr<Tensor> value = variable->Read();
  if (absl::IsFailedPrecondition(value.status())) {
    return ValueMissing(ctx.input(i).scalar<ResourceHandle>());
  }
  return value;
}

Status ReadVariableRows(const KernelContext& ctx, int i, DType dtype,
                        absl::FunctionRef<Status(const Tensor& value, RowLocks& locks)> fn) {
  MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, i, dtype));
  Status status = variable->ReadRows(fn);
  if (absl::IsFailedPrecondition(status) && ctx.input(i).dtype() == DType::kResource) {
    return ValueMissing(ctx.input(i).scalar<ResourceHandle>());
  }
  return status;
}

Status ChangeState(KernelContext& ctx, absl::FunctionRef<Status(VariableUpdate* by)> change) {
  Status status = ctx.resources()->UpdateVariables(ctx, change);
  if (absl::IsFailedPrecondition(status) && ctx.input(0).dtype() == DType::kResource) {
    return absl::NotFoundError(status.message());
  }
  return status;
}

PartialShape VariableShapeOf(const ShapeContext& c, int i) {
  return c.node().input_type(i) == DType::kResource ? c.HandleShape(i) : c.input(i);
}

Status UpdatedVariableShape(ShapeContext& c) {
  if (c.num_outputs() > 0) c.set_output(0, c.input(0));
  return absl::OkStatus();
}

}  // namespace millrace
