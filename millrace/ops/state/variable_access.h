// Access of kernels to variables, by reference (VariableV2) or resource handle (VarHandleOp).
#pragma once

#include "absl/functional/function_ref.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/variable.h"

namespace millrace {

// The variable that input i refers to. INVALID_ARGUMENT if it is not of type `dtype`.
StatusOr<RefPtr<Variable>> VariableInput(const KernelContext& ctx, int i, DType dtype);

// The value of the variable that input i refers to. NOT_FOUND, naming it, if it is uninitialized, as in TensorFlow for
// resource variables.
StatusOr<Tensor> VariableValue(const KernelContext& ctx, int i, DType dtype);

// Calls fn on rows of the variable that input i refers to; see Variable::ReadRows. If uninitialized: NOT_FOUND for a
// resource variable, FAILED_PRECONDITION for a reference.
Status ReadVariableRows(const KernelContext& ctx, int i, DType dtype,
                        absl::FunctionRef<Status(const Tensor& value, RowLocks& locks)> fn);

// Updates variables through ResourceManager::UpdateVariables; `change` passes its argument on to the update of the
// Variable. An uninitialized variable gives FAILED_PRECONDITION by
// reference and NOT_FOUND by handle, as in TensorFlow.
Status ChangeState(KernelContext& ctx, absl::FunctionRef<Status(VariableUpdate* by)> change);

// Forwards the reference after an update by reference; with a handle there is no output.
inline void ForwardReference(KernelContext& ctx) {
  if (ctx.num_outputs() > 0) ctx.SetOutput(0, ctx.input(0));
}

// The shape of the variable that input i refers to, as far as known.
PartialShape VariableShapeOf(const ShapeContext& c, int i);

// Shape function of updates: output 0, if any, is the input reference.
Status UpdatedVariableShape(ShapeContext& c);

}  // namespace millrace
