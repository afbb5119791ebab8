// What all optimizers share: gradients of a loss, and updates of variables with them.
#pragma once

#include <map>
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
  // All trainable variables when empty.
  std::vector<Var> variables = {};
  // See GradientsOptions::colocate_with_ops.
  bool colocate_gradients_with_ops = false;
};
struct ApplyGradientsOptions {
  // Counted up by one after the updates; GlobalStep(scope) usually.
  std::optional<Var> global_step = std::nullopt;
  // Whether the step runs the graph's update ops (moving averages of BatchNorm) too.
  bool run_update_ops = true;
};
struct MinimizeOptions {
  std::optional<Var> global_step = std::nullopt;
  std::vector<Var> variables = {};
  bool run_update_ops = true;
  bool colocate_gradients_with_ops = false;
};

// An optimizer remembers the slot variables (momentum, ...) that it made for a variable, so use one
// object for one training op. Slots are named after variable and optimizer, as TensorFlow's are:
// "dense/kernel/Adam".
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The gradients of `loss`, to look at or to change before ApplyGradients.
  std::vector<GradAndVar> ComputeGradients(const Scope& scope, const Output& loss,
                                           const ComputeGradientsOptions& options = {});
  // The op that makes one step. Variables without a gradient stay; INVALID_ARGUMENT when there is
  // none at all.
  Operation ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                           const ApplyGradientsOptions& options = {});
  // Both.
  Operation Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options = {});

  const std::string& name() const { return name_; }

 protected:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}

  // One update. For slices, every index comes once when SumsDuplicates().
  virtual Operation ApplyDense(const Scope& scope, const Output& gradient, const Var& variable) = 0;
  virtual Operation ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                const Var& variable) = 0;
  virtual bool SumsDuplicates() const { return true; }
  // What follows once per step, after `updates`.
  virtual std::vector<Operation> Finish(const Scope& scope, const std::vector<Operation>& updates) {
    return updates;
  }

  // A variable that belongs to `variable`, of its shape and type; made once, and named
  // "variable/Optimizer", then "variable/Optimizer_1", in the order of the first calls.
  Var Slot(const Var& variable, const std::string& slot, double initial_value = 0);
  // A scalar variable of the optimizer's own, kept beside `like`.
  Var Scalar(const Var& like, const std::string& name, double initial_value);
  // A setting as a tensor of type `dtype`; one constant serves all variables of a device, and is there.
  Output Setting(const char* name, const Input& value, DType dtype);

 private:
  Operation ApplyOne(const Scope& scope, const GradAndVar& pair);

  const std::string name_;
  // While gradients are applied: where Setting puts its constants, and where the caller's own nodes
  // go.
  std::optional<Scope> scope_;
  std::optional<Scope> outer_;
  // What the variable that is being updated asks for.
  std::string device_;
  std::map<std::pair<const Node*, std::string>, Var> slots_;
  std::map<std::tuple<const Graph*, std::string, DType, std::string>, Output> settings_;
};

}  // namespace millrace
