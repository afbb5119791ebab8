// The base class of optimizers: computes the gradients of a loss and applies them to variables.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/api/gradients.h"
#include "millrace/api/variable.h"

namespace millrace {

struct GradAndVar {
  Gradient gradient;
  Var variable;
};

struct ComputeGradientsOptions {
  // All trainable variables if empty.
  std::vector<Var> variables = {};
  // See GradientsOptions::colocate_with_ops.
  bool colocate_gradients_with_ops = false;
};
struct ApplyGradientsOptions {
  // Incremented after the updates; usually GlobalStep(scope).
  std::optional<Var> global_step = std::nullopt;
  // Whether the step also runs the graph's update ops (moving averages of BatchNorm).
  bool run_update_ops = true;
};
struct MinimizeOptions {
  std::optional<Var> global_step = std::nullopt;
  std::vector<Var> variables = {};
  bool run_update_ops = true;
  bool colocate_gradients_with_ops = false;
};

// An optimizer keeps the slot variables (momentum and so on) that it created for a variable, so use one object per
// training op. Slots are named after the variable and the optimizer, as in TensorFlow: "dense/kernel/Adam".
class Optimizer {
 public:
  // The optimizer of the variables whose names begin with a prefix: {{"dnn/", adagrad}, {"linear/", ftrl}}. Slots have
  // the names that the optimizers themselves give them. The scope fails with INVALID_ARGUMENT for a variable that has
  // a gradient and none of the prefixes.
  static std::shared_ptr<Optimizer> ByPrefix(
      std::vector<std::pair<std::string, std::shared_ptr<Optimizer>>> optimizers);

  virtual ~Optimizer() = default;

  // The gradients of `loss`, which may be inspected or modified before ApplyGradients.
  std::vector<GradAndVar> ComputeGradients(const Scope& scope, const Output& loss,
                                           const ComputeGradientsOptions& options = {});
  // The op that performs one training step. Variables without a gradient are unchanged; the scope fails with
  // INVALID_ARGUMENT if no variable has one.
  Operation ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                           const ApplyGradientsOptions& options = {});
  // ComputeGradients followed by ApplyGradients.
  Operation Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options = {});

  const std::string& name() const { return name_; }

 protected:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}

  // Updates one variable. If SumsDuplicates(), the indices of a sparse gradient are unique.
  virtual Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) = 0;
  virtual Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient, const Var& variable) = 0;
  virtual bool SumsDuplicates() const { return true; }
  // Ops that run once per step, after `updates`.
  virtual std::vector<Operation> Finish(const Scope& scope, const std::vector<Operation>& updates) { return updates; }

  // A slot variable of `variable`, of its shape and type. Created on the first call; named "variable/Optimizer", then
  // "variable/Optimizer_1" and so on in the order of the first calls.
  Var Slot(const Var& variable, const std::string& slot, double initial_value = 0);
  // A scalar variable of the optimizer, colocated with `like`.
  Var Scalar(const Var& like, const std::string& name, double initial_value);
  // A hyperparameter as a tensor of type `dtype`. All variables of a device share one constant on that device.
  Output Setting(const char* name, const Input& value, DType dtype);

 private:
  class ByPrefixes;
  Operation ApplyOne(const Scope& scope, const GradAndVar& pair);

  const std::string name_;
  // Set while gradients are applied: the scope of Setting's constants, and the caller's scope.
  std::optional<Scope> scope_;
  std::optional<Scope> outer_;
  // The requested device of the variable that is being updated.
  std::string device_;
  std::map<std::pair<const Node*, std::string>, Var> slots_;
  std::map<std::tuple<const Graph*, std::string, DType, std::string>, Output> settings_;
};

}  // namespace millrace
