// The optimizers with a proximal step: ProximalGradientDescent, ProximalAdagrad, AdagradDA.
#include "millrace/api/op_call.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/reductions.h"

namespace millrace::optimizers {

Operation ProximalGradientDescent::Apply(const Scope& scope, const Output& gradient, const Output* indices,
                                         const Var& variable) {
  const DType type = variable.dtype();
  std::vector<Operand> inputs = {variable.handle(), Setting("learning_rate", options_.learning_rate, type),
                                 Setting("l1", options_.l1, type), Setting("l2", options_.l2, type), gradient};
  if (indices == nullptr) return AddOp(scope, "ResourceApplyProximalGradientDescent", inputs);
  inputs.push_back(*indices);
  return AddOp(scope, "ResourceSparseApplyProximalGradientDescent", inputs);
}
Operation ProximalGradientDescent::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return Apply(scope, gradient, nullptr, variable);
}
Operation ProximalGradientDescent::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return Apply(scope, gradient.values, &gradient.indices, variable);
}

Operation ProximalAdagrad::Apply(const Scope& scope, const Output& gradient, const Output* indices,
                                 const Var& variable) {
  const DType type = variable.dtype();
  std::vector<Operand> inputs = {variable.handle(),
                                 Slot(variable, "accumulator", options_.initial_accumulator).handle(),
                                 Setting("learning_rate", options_.learning_rate, type),
                                 Setting("l1", options_.l1, type),
                                 Setting("l2", options_.l2, type),
                                 gradient};
  if (indices == nullptr) return AddOp(scope, "ResourceApplyProximalAdagrad", inputs);
  inputs.push_back(*indices);
  return AddOp(scope, "ResourceSparseApplyProximalAdagrad", inputs);
}
Operation ProximalAdagrad::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return Apply(scope, gradient, nullptr, variable);
}
Operation ProximalAdagrad::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return Apply(scope, gradient.values, &gradient.indices, variable);
}

Operation AdagradDA::Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable) {
  const DType type = variable.dtype();
  if (options_.global_step.is_nothing()) {
    scope.UpdateStatus(InvalidArgument(name(), ": global_step is not set, by which gradients are averaged"));
    return Operation(scope, nullptr);
  }
  const Output sum = Slot(variable, "gradient_accumulator").handle();
  const Output squares = Slot(variable, "gradient_squared_accumulator", options_.initial_accumulator).handle();
  std::vector<Operand> inputs = {variable.handle(), sum, squares, gradient};
  if (indices != nullptr) inputs.push_back(*indices);
  const Output step = Op(scope, "AddV2", {Setting("global_step", options_.global_step, DType::kInt64), 1});
  inputs.insert(inputs.end(), {Setting("learning_rate", options_.learning_rate, type), Setting("l1", options_.l1, type),
                               Setting("l2", options_.l2, type), step});
  return AddOp(scope, indices == nullptr ? "ResourceApplyAdagradDA" : "ResourceSparseApplyAdagradDA", inputs);
}
Operation AdagradDA::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return Apply(scope, gradient, nullptr, variable);
}
Operation AdagradDA::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return Apply(scope, gradient.values, &gradient.indices, variable);
}

}  // namespace millrace::optimizers
