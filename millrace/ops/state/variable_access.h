// How kernels reach variables: by a reference (VariableV2) or a handle (VarHandleOp) alike.
#pragma once

#include "absl/functional/function_ref.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/variable.h"

namespace millrace {

// The variable that input i points to. INVALID_ARGUMENT when it is not of type `dtype`.
StatusOr<RefPtr<Variable>> VariableInput(const KernelContext& ctx, int i, DType dtype);

// The value of the variable that input i points to. NOT_FOUND, as TensorFlow says it of a resource,
// names one that has none.
StatusOr<Tensor> VariableValue(const KernelContext& ctx, int i, DType dtype);

// Calls fn on rows of the variable that input i points to; see Variable::ReadRows. Errors as VariableValue by
// handle; FAILED_PRECONDITION by reference.
Status ReadVariableRows(const KernelContext& ctx, int i, DType dtype,
                        absl::FunctionRef<Status(const Tensor& value, RowLocks& locks)> fn);

// Runs a change of state through the one entry point for it. A variable without a value gives
// FAILED_PRECONDITION by reference and NOT_FOUND by handle, as in TensorFlow.
Status ChangeState(KernelContext& ctx, absl::FunctionRef<Status()> change);

// What an update by reference ends with: the reference goes on. By handle there is no output.
inline void ForwardReference(KernelContext& ctx) {
  if (ctx.num_outputs() > 0) ctx.SetOutput(0, ctx.input(0));
}

// The shape of the variable that input i points to, as far as known.
PartialShape VariableShapeOf(const ShapeContext& c, int i);

// Shape function of updates: output 0, if any, is the reference that came in.
Status UpdatedVariableShape(ShapeContext& c);

}  // namespace millrace
