#include "millrace/api/optimizers.h"

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"

namespace millrace::optimizers {

Operation GradientDescent::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  const Output rate = Setting("learning_rate", options_.learning_rate, variable.dtype());
  return AddOp(scope, "ResourceApplyGradientDescent", {variable.handle(), rate, gradient});
}
Operation GradientDescent::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  const Output rate = Setting("learning_rate", options_.learning_rate, variable.dtype());
  const Output delta = Op(scope, "Mul", {gradient.values, Op(scope, "Neg", {rate})});
  return AddOp(scope, "ResourceScatterAdd", {variable.handle(), gradient.indices, delta});
}

Operation Momentum::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return AddOp(scope, "ResourceApplyMomentum",
               {variable.handle(), Slot(variable, "momentum").handle(),
                Setting("learning_rate", options_.learning_rate, variable.dtype()), gradient,
                Setting("momentum", options_.momentum, variable.dtype())},
               {{"use_nesterov", options_.use_nesterov}});
}
Operation Momentum::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return AddOp(scope, "ResourceSparseApplyMomentum",
               {variable.handle(), Slot(variable, "momentum").handle(),
                Setting("learning_rate", options_.learning_rate, variable.dtype()), gradient.values, gradient.indices,
                Setting("momentum", options_.momentum, variable.dtype())},
               {{"use_nesterov", options_.use_nesterov}});
}

Operation Adagrad::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return AddOp(scope, "ResourceApplyAdagrad",
               {variable.handle(), Slot(variable, "accumulator", options_.initial_accumulator).handle(),
                Setting("learning_rate", options_.learning_rate, variable.dtype()), gradient});
}
Operation Adagrad::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return AddOp(scope, "ResourceSparseApplyAdagrad",
               {variable.handle(), Slot(variable, "accumulator", options_.initial_accumulator).handle(),
                Setting("learning_rate", options_.learning_rate, variable.dtype()), gradient.values, gradient.indices});
}

Operation Adadelta::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  const DType type = variable.dtype();
  const Var accumulated = Slot(variable, "accum");
  const Var updated = Slot(variable, "accum_update");
  return AddOp(scope, "ResourceApplyAdadelta",
               {variable.handle(), accumulated.handle(), updated.handle(),
                Setting("learning_rate", options_.learning_rate, type), Setting("rho", options_.rho, type),
                Setting("epsilon", options_.epsilon, type), gradient});
}
Operation Adadelta::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  const DType type = variable.dtype();
  const Var accumulated = Slot(variable, "accum");
  const Var updated = Slot(variable, "accum_update");
  return AddOp(scope, "ResourceSparseApplyAdadelta",
               {variable.handle(), accumulated.handle(), updated.handle(),
                Setting("learning_rate", options_.learning_rate, type), Setting("rho", options_.rho, type),
                Setting("epsilon", options_.epsilon, type), gradient.values, gradient.indices});
}

struct Adam::Settings {
  Var m, v, beta1_power, beta2_power;
  Output rate, beta1, beta2, epsilon;
};

Adam::Settings Adam::SettingsFor(const Var& variable) {
  if (!first_) first_ = variable;
  const DType type = variable.dtype();
  Settings s;
  s.m = Slot(variable, "m");
  s.v = Slot(variable, "v");
  s.beta1_power = Scalar(*first_, "beta1_power", options_.beta1);
  s.beta2_power = Scalar(*first_, "beta2_power", options_.beta2);
  s.rate = Setting("learning_rate", options_.learning_rate, type);
  s.beta1 = Setting("beta1", options_.beta1, type);
  s.beta2 = Setting("beta2", options_.beta2, type);
  s.epsilon = Setting("epsilon", options_.epsilon, type);
  return s;
}

Operation Adam::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  const Settings s = SettingsFor(variable);
  return AddOp(
      scope, "ResourceApplyAdam",
      {variable.handle(), s.m.handle(), s.v.handle(), Setting("beta1_power", s.beta1_power, variable.dtype()),
       Setting("beta2_power", s.beta2_power, variable.dtype()), s.rate, s.beta1, s.beta2, s.epsilon, gradient});
}

Operation Adam::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  const Settings s = SettingsFor(variable);
  const DType type = variable.dtype();
  const Output& g = gradient.values;
  // moment = beta * moment for all rows, plus (1 - beta) * what for the rows that have a gradient.
  const auto move = [&](const Var& moment, const Output& beta, const Output& what) {
    const Operation decay = moment.Assign(scope, Op(scope, "Mul", {moment, beta}));
    const Operation add = AddOp(scope.WithControlDependencies({decay}), "ResourceScatterAdd",
                                {moment.handle(), gradient.indices, Op(scope, "Mul", {what, 1 - beta})});
    return moment.Read(scope.WithControlDependencies({add}));
  };
  const Output m = move(s.m, s.beta1, g);
  const Output v = move(s.v, s.beta2, Op(scope, "Square", {g}));
  const Output power1 = Setting("beta1_power", s.beta1_power, type);
  const Output power2 = Setting("beta2_power", s.beta2_power, type);
  const Output rate = Op(scope, "Mul", {s.rate, Op(scope, "RealDiv", {Op(scope, "Sqrt", {1 - power2}), 1 - power1})});
  const Output change =
      Op(scope, "RealDiv", {Op(scope, "Mul", {m, rate}), Op(scope, "AddV2", {Op(scope, "Sqrt", {v}), s.epsilon})});
  return variable.AssignSub(scope, change);
}

std::vector<Operation> Adam::Finish(const Scope& scope, const std::vector<Operation>& updates) {
  if (!first_) return updates;
  const Settings s = SettingsFor(*first_);
  const Scope after = scope.WithControlDependencies(updates);
  std::vector<Operation> all = updates;
  for (const auto& [power, beta] : {std::pair(s.beta1_power, s.beta1), std::pair(s.beta2_power, s.beta2)}) {
    all.push_back(power.Assign(after, Op(scope, "Mul", {power, beta})));
  }
  return all;
}

Operation RMSProp::Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable) {
  const DType type = variable.dtype();
  const Output rms = Slot(variable, "rms", 1).handle();
  std::vector<Operand> inputs = {variable.handle()};
  if (options_.centered) inputs.push_back(Slot(variable, "mg").handle());
  inputs.insert(inputs.end(),
                {rms, Slot(variable, "momentum").handle(), Setting("learning_rate", options_.learning_rate, type),
                 Setting("decay", options_.decay, type), Setting("momentum", options_.momentum, type),
                 Setting("epsilon", options_.epsilon, type), gradient});
  if (indices == nullptr) {
    return AddOp(scope, options_.centered ? "ResourceApplyCenteredRMSProp" : "ResourceApplyRMSProp", inputs);
  }
  inputs.push_back(*indices);
  return AddOp(scope, options_.centered ? "ResourceSparseApplyCenteredRMSProp" : "ResourceSparseApplyRMSProp", inputs);
}
Operation RMSProp::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return Apply(scope, gradient, nullptr, variable);
}
Operation RMSProp::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return Apply(scope, gradient.values, &gradient.indices, variable);
}

Operation Ftrl::Apply(const Scope& scope, const Output& gradient, const Output* indices, const Var& variable) {
  const DType type = variable.dtype();
  const Output accumulator = Slot(variable, "accum", options_.initial_accumulator).handle();
  const bool shrinks = options_.l2_shrinkage != 0;
  std::vector<Operand> inputs = {variable.handle(), accumulator, Slot(variable, "linear").handle(), gradient};
  if (indices != nullptr) inputs.push_back(*indices);
  inputs.insert(inputs.end(), {Setting("learning_rate", options_.learning_rate, type), Setting("l1", options_.l1, type),
                               Setting("l2", options_.l2, type)});
  if (shrinks) inputs.push_back(Setting("l2_shrinkage", options_.l2_shrinkage, type));
  inputs.push_back(Setting("learning_rate_power", options_.learning_rate_power, type));
  if (indices != nullptr)
    return AddOp(scope, shrinks ? "ResourceSparseApplyFtrlV2" : "ResourceSparseApplyFtrl", inputs);
  return AddOp(scope, shrinks ? "ResourceApplyFtrlV2" : "ResourceApplyFtrl", inputs);
}
Operation Ftrl::ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) {
  return Apply(scope, gradient, nullptr, variable);
}
Operation Ftrl::ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) {
  return Apply(scope, gradient.values, &gradient.indices, variable);
}

}  // namespace millrace::optimizers
