#include "millrace/api/moving_averages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/variable_slice.h"

namespace millrace {
namespace {

// Identifies a variable by its handle: its value may be another tensor in each place. A read of a variable stands for
// the variable.
std::pair<const Node*, int> KeyOf(const Output& of) {
  const Node* const node = of.node();
  if (node != nullptr && node->is_type("ReadVariableOp")) return {node->input(0).node, -1};
  return {node, of.index()};
}
std::pair<const Node*, int> KeyOf(const Var& variable) { return {variable.handle().node(), -1}; }

Status CheckAverageable(const std::string& name, const Output& of) {
  if (of.empty()) return InvalidArgument(name, ": a variable or tensor is empty");
  if (!IsFloating(of.dtype()))
    return InvalidArgument(name, ": ", of.name(), " is ", of.dtype(), ", of which there are no averages");
  return absl::OkStatus();
}

// An average of a part of a variable is a part of the average.
void KeepSlice(const Var& variable, const Var& average) {
  const VariableSlice* const part = SliceOf(variable);
  if (part == nullptr || average.empty()) return;
  VariableSlice beside = *part;
  absl::StrAppend(&beside.full_name, average.var_name().substr(variable.var_name().size()));
  SetSlice(average, std::move(beside));
}

// In a strategy the replicas compute the same average, which is that of one of them.
VarOptions AverageOptions(DType dtype) {
  return {.dtype = dtype, .trainable = false, .aggregation = VariableAggregation::kMean};
}

}  // namespace

Output ExponentialMovingAverage::Decay(const Scope& s, DType dtype) const {
  Output decay = api_internal::Cast(s, decay_.In(s, DType::kFloat, "decay"), DType::kFloat);
  if (!options_.num_updates.is_nothing()) {
    const Output n = api_internal::Cast(s, options_.num_updates.In(s, DType::kFloat), DType::kFloat);
    const Output bound = Op(s, "RealDiv", {Op(s, "AddV2", {n, 1}), Op(s, "AddV2", {n, 10})});
    decay = Op(s, "Minimum", {decay, bound});
  }
  return api_internal::Cast(s, decay, dtype);
}

Operation ExponentialMovingAverage::Update(const Scope& scope, const Var& average, const Output& value,
                                           bool zero_debias) const {
  const Scope s = scope.ColocateWith(average.handle());
  const Output rate = Op(s, "Sub", {1, Decay(s, average.dtype())});
  const auto towards = [&](const Var& variable) {
    return Op(s, "Mul", {Op(s, "Sub", {variable.Read(s), value}), rate});
  };
  if (!zero_debias) return average.AssignSub(s, towards(average));
  const Scope beside = s.WithPrefix(average.var_name());
  const Var biased(beside, "biased", average.shape().AsShape(), init::Zeros(), AverageOptions(average.dtype()));
  const Var steps(beside, "local_step", Shape(), init::Zeros(), AverageOptions(average.dtype()));
  const Scope after =
      s.WithControlDependencies({biased.AssignSub(s, towards(biased)), steps.AssignAdd(s, Op(s, "OnesLike", {rate}))});
  const Output share = Op(after, "Sub", {1, Op(after, "Pow", {1 - rate, steps.Read(after)})});
  return average.Assign(after, Op(after, "RealDiv", {biased.Read(after), share}));
}

Operation ExponentialMovingAverage::Apply(const Scope& scope, std::vector<Var> variables) {
  const Scope s = scope.ForComposite(options_.name);
  const Operation nothing(s, nullptr);
  if (variables.empty()) variables = TrainableVariables(scope);
  if (variables.empty()) s.UpdateStatus(InvalidArgument(options_.name, ": the graph has no trainable variables"));
  std::vector<Operation> updates;
  for (const Var& variable : variables) {
    s.UpdateStatus(CheckAverageable(options_.name, variable));
    if (s.ok() && averages_.contains(KeyOf(variable))) {
      s.UpdateStatus(InvalidArgument(options_.name, ": ", variable.var_name(), " has an average already"));
    }
    if (s.ok() && !variable.shape().IsFullyDefined()) {
      s.UpdateStatus(InvalidArgument(options_.name, ": the shape of ", variable.var_name(), " is not known"));
    }
    if (!s.ok()) return nothing;
    const Scope beside = s.WithoutControlDependencies().WithPrefix(variable.var_name()).ColocateWith(variable.handle());
    const Output initial = variable.initial_value();
    const Var average = initial.empty() ? Var(beside, options_.name, variable.shape().AsShape(), init::Zeros(),
                                              AverageOptions(variable.dtype()))
                                        : Var(beside, options_.name, Input(initial), AverageOptions(variable.dtype()));
    if (!s.ok()) return nothing;
    KeepSlice(variable, average);
    averages_[KeyOf(variable)] = average;
    updates.push_back(Update(s, average, variable.Read(s), /*zero_debias=*/false));
  }
  return Group(s, updates);
}

Operation ExponentialMovingAverage::ApplyTensors(const Scope& scope, const std::vector<Output>& tensors) {
  const Scope s = scope.ForComposite(options_.name);
  const Operation nothing(s, nullptr);
  std::vector<Operation> updates;
  for (const Output& tensor : tensors) {
    s.UpdateStatus(CheckAverageable(options_.name, tensor));
    if (s.ok() && averages_.contains(KeyOf(tensor))) {
      s.UpdateStatus(InvalidArgument(options_.name, ": ", tensor.name(), " has an average already"));
    }
    if (s.ok() && !tensor.shape().IsFullyDefined()) {
      s.UpdateStatus(InvalidArgument(options_.name, ": the shape of ", tensor.name(), " is not known"));
    }
    if (!s.ok()) return nothing;
    const Scope beside = s.WithoutControlDependencies().WithPrefix(tensor.op().name());
    const Var average(beside, options_.name, tensor.shape().AsShape(), init::Zeros(), AverageOptions(tensor.dtype()));
    if (!s.ok()) return nothing;
    averages_[KeyOf(tensor)] = average;
    updates.push_back(Update(s, average, tensor, options_.zero_debias));
  }
  return Group(s, updates);
}

Var ExponentialMovingAverage::Average(const Output& of) const {
  const auto found = averages_.find(KeyOf(of));
  return found == averages_.end() ? Var() : found->second;
}

std::string ExponentialMovingAverage::AverageName(const Output& of) const {
  const auto found = averages_.find(KeyOf(of));
  if (found != averages_.end()) return found->second.var_name();
  const auto [node, index] = KeyOf(of);
  return node == nullptr ? "" : absl::StrCat(node->name(), "/", options_.name);
}

std::map<std::string, Var> ExponentialMovingAverage::VariablesToRestore(const Scope& scope,
                                                                        const std::vector<Var>& averaged) const {
  std::map<std::string, Var> by_name;
  std::vector<const Node*> done;
  const auto add = [&](const Var& variable, const std::string& name) {
    by_name.emplace(name, variable);
    done.push_back(variable.handle().node());
  };
  for (const Var& variable : averaged.empty() ? TrainableVariables(scope) : averaged) {
    add(variable, AverageName(variable));
  }
  if (averaged.empty()) {
    // Also what is not trainable but has an average.
    for (const Var& variable : GlobalVariables(scope)) {
      if (!variable.trainable() && averages_.contains(KeyOf(variable))) add(variable, AverageName(variable));
    }
  }
  for (const Var& variable : GlobalVariables(scope)) {
    if (std::find(done.begin(), done.end(), variable.handle().node()) == done.end()) {
      by_name.emplace(variable.var_name(), variable);
    }
  }
  return by_name;
}

}  // namespace millrace
