#include "millrace/api/optimizer.h"

#include "absl/strings/match.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/variable_slice.h"

namespace millrace {
namespace {

// Merges duplicate indices by summing their values.
IndexedSlices SumDuplicates(const Scope& s, const IndexedSlices& slices) {
  const Operation unique = AddOp(s, "Unique", {slices.indices});
  const Output rows = Op(
      s, "StridedSlice",
      {Op(s, "Shape", {unique.output(0)}), std::vector<int32_t>{0}, std::vector<int32_t>{1}, std::vector<int32_t>{1}},
      {{"shrink_axis_mask", 1}});
  return {Op(s, "UnsortedSegmentSum", {slices.values, unique.output(1), rows}), unique.output(0), slices.dense_shape};
}

Shape ShapeOf(const Var& variable) { return variable.shape().IsFullyDefined() ? variable.shape().AsShape() : Shape(); }

}  // namespace

std::vector<GradAndVar> Optimizer::ComputeGradients(const Scope& scope, const Output& loss,
                                                    const ComputeGradientsOptions& options) {
  const std::vector<Var> variables = options.variables.empty() ? TrainableVariables(scope) : options.variables;
  if (variables.empty()) scope.UpdateStatus(InvalidArgument(name_, ": the graph has no variables to optimize"));
  const std::vector<Gradient> gradients =
      Gradients(scope, {loss}, std::vector<Output>(variables.begin(), variables.end()),
                {.colocate_with_ops = options.colocate_gradients_with_ops});
  std::vector<GradAndVar> result;
  for (size_t i = 0; i < variables.size(); ++i) result.push_back({gradients[i], variables[i]});
  return result;
}

Operation Optimizer::ApplyOne(const Scope& scope, const GradAndVar& pair) {
  const Scope s = scope.ColocateWith(pair.variable.handle());
  device_ = pair.variable.handle().node()->requested_device();
  if (!pair.gradient.is_slices()) return ApplyDense(s, pair.gradient.dense(), pair.variable);
  return ApplySparse(s, SumsDuplicates() ? SumDuplicates(s, pair.gradient.slices()) : pair.gradient.slices(),
                     pair.variable);
}

Operation Optimizer::ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                                    const ApplyGradientsOptions& options) {
  const Scope s = scope.ForComposite(name_);
  const Operation nothing(s, nullptr);
  scope_ = s;
  outer_ = scope.WithoutOpName();
  std::vector<Operation> updates;
  for (const GradAndVar& pair : gradients) {
    if (pair.gradient.empty()) continue;
    if (pair.variable.empty()) {
      s.UpdateStatus(InvalidArgument(name_, ": a gradient belongs to an empty variable"));
      return nothing;
    }
    updates.push_back(ApplyOne(s.WithPrefix(absl::StrCat(s.prefix(), "/update_", pair.variable.var_name())), pair));
    if (!s.ok()) return nothing;
  }
  if (updates.empty()) {
    std::string names;
    for (const GradAndVar& pair : gradients) absl::StrAppend(&names, " ", pair.variable.var_name());
    s.UpdateStatus(InvalidArgument(name_, ": the loss does not depend on any of the variables:", names));
    return nothing;
  }
  updates = Finish(s, updates);
  if (options.run_update_ops) {
    const std::vector<Operation> others = UpdateOps(s);
    updates.insert(updates.end(), others.begin(), others.end());
  }
  scope_.reset();
  outer_.reset();
  if (!options.global_step) return Group(s.WithOpName("step"), updates);
  return options.global_step->AssignAdd(s.WithControlDependencies(updates).ColocateWith(options.global_step->handle()),
                                        1);
}

Operation Optimizer::Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options) {
  const std::vector<GradAndVar> gradients = ComputeGradients(
      scope.WithoutOpName(), loss,
      {.variables = options.variables, .colocate_gradients_with_ops = options.colocate_gradients_with_ops});
  return ApplyGradients(scope, gradients,
                        {.global_step = options.global_step, .run_update_ops = options.run_update_ops});
}

Var Optimizer::Slot(const Var& variable, const std::string& slot, double initial_value) {
  auto [it, is_new] = slots_.try_emplace({variable.handle().node(), slot});
  if (is_new) {
    const Scope s = scope_->WithPrefix(variable.var_name()).ColocateWith(variable.handle());
    it->second = Var(s, name_, ShapeOf(variable), init::Constant(initial_value),
                     {.dtype = variable.dtype(), .trainable = false});
    const VariableSlice* const part = SliceOf(variable);
    if (part != nullptr && !it->second.empty()) {
      VariableSlice beside = *part;
      absl::StrAppend(&beside.full_name, it->second.var_name().substr(variable.var_name().size()));
      SetSlice(it->second, std::move(beside));
    }
  }
  return it->second;
}

Var Optimizer::Scalar(const Var& like, const std::string& name, double initial_value) {
  auto [it, is_new] = slots_.try_emplace({nullptr, name});
  if (is_new) {
    // WithPrefix: a variable scope that only reuses does not keep the optimizer from having its own.
    const Scope s = outer_->WithPrefix(outer_->prefix()).ColocateWith(like.handle());
    it->second = Var(s, name, Shape(), init::Constant(initial_value), {.dtype = like.dtype(), .trainable = false});
  }
  return it->second;
}

Output Optimizer::Setting(const char* name, const Input& value, DType dtype) {
  const std::string device = value.is_output() ? "" : device_;
  auto [it, is_new] = settings_.try_emplace({scope_->graph(), name, dtype, device});
  const Scope s = device.empty() ? *scope_ : scope_->WithoutDevice().WithDevice(device);
  if (is_new) it->second = api_internal::Cast(s, value.In(s, dtype, name), dtype);
  return it->second;
}

class Optimizer::ByPrefixes : public Optimizer {
 public:
  explicit ByPrefixes(std::vector<std::pair<std::string, std::shared_ptr<Optimizer>>> optimizers)
      : Optimizer("training"), optimizers_(std::move(optimizers)) {}

 private:
  // The variable's optimizer, in the state that this one is in.
  Optimizer* Of(const Scope& scope, const Var& variable) {
    for (const auto& [prefix, optimizer] : optimizers_) {
      if (!absl::StartsWith(variable.var_name(), prefix)) continue;
      optimizer->scope_ = scope_;
      optimizer->outer_ = outer_;
      optimizer->device_ = device_;
      return optimizer.get();
    }
    scope.UpdateStatus(
        InvalidArgument("the variable ", variable.var_name(), " has none of the prefixes of optimizers"));
    return nullptr;
  }
  Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) override {
    Optimizer* const own = Of(scope, variable);
    return own == nullptr ? Operation(scope, nullptr) : own->ApplyDense(scope, gradient, variable);
  }
  Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) override {
    Optimizer* const own = Of(scope, variable);
    return own == nullptr ? Operation(scope, nullptr) : own->ApplySparse(scope, gradient, variable);
  }
  std::vector<Operation> Finish(const Scope& scope, const std::vector<Operation>& updates) override {
    std::vector<Operation> all = updates;
    for (const auto& [prefix, optimizer] : optimizers_) {
      if (!optimizer->scope_) continue;  // none of its variables has a gradient
      all = optimizer->Finish(scope, all);
      optimizer->scope_.reset();
      optimizer->outer_.reset();
    }
    return all;
  }

  const std::vector<std::pair<std::string, std::shared_ptr<Optimizer>>> optimizers_;
};

std::shared_ptr<Optimizer> Optimizer::ByPrefix(
    std::vector<std::pair<std::string, std::shared_ptr<Optimizer>>> optimizers) {
  return std::make_shared<ByPrefixes>(std::move(optimizers));
}

}  // namespace millrace
