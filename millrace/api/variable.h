// Variables: tensors that outlive a step.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/initializers.h"
#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

namespace api_internal {
struct VariableNodes;
}

struct VarOptions {
  DType dtype = DType::kFloat;
  // Whether optimizers change it unless told otherwise.
  bool trainable = true;
  // A worker's own: counters of an input, of a metric. It is where the scope's other ops are, whatever the scope says of variables; it is neither saved nor
  // trained, and LocalVariablesInitializer gives it its value, in each session anew.
  bool local = false;
};

// A variable of the graph; a cheap value. It is an Output: its value as of the step's reading of
// it, which is before or after an assignment in the same step unless control dependencies order
// them (see Read).
//
//   Var w(scope, "weights", {784, 10}, init::GlorotUniform());
//   Output y = ops::MatMul(scope, x, w);
//
// The full name ("layer1/weights") is what it is called in checkpoints and shared under in a task.
class Var : public Output {
 public:
  Var() = default;
  Var(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
      const VarOptions& options = {});
  // Shape from the value; so is the type, unless the value is a number or braces and adapts to
  // options.dtype.
  Var(const Scope& scope, absl::string_view name, const Input& initial_value,
      const VarOptions& options = {});

  // The resource, as ops that change variables take it.
  Output handle() const { return Output(scope(), handle_); }
  std::string var_name() const { return handle_.node == nullptr ? "" : handle_.node->name(); }
  bool trainable() const { return trainable_; }
  bool local() const { return local_; }
  Operation initializer() const { return Operation(scope(), initializer_); }
  Output initial_value() const { return Output(scope(), initial_value_); }
  Output IsInitialized(const Scope& scope) const;

  // Reads it anew: after the control dependencies of `scope`.
  Output Read(const Scope& scope) const;
  Operation Assign(const Scope& scope, const Input& value) const;
  Operation AssignAdd(const Scope& scope, const Input& delta) const;
  Operation AssignSub(const Scope& scope, const Input& delta) const;

  // For the front end itself.
  Var(const Scope& scope, const api_internal::VariableNodes& nodes);

 private:
  using MakeInitialValue = std::function<Output(const Scope&)>;
  void Build(const Scope& scope, absl::string_view name, const MakeInitialValue& make,
             const VarOptions& options);

  Endpoint handle_;
  Endpoint initial_value_;
  Node* initializer_ = nullptr;
  bool trainable_ = false;
  bool local_ = false;
};

// All variables of the graph but the local ones, in the order they were made; those of them that optimizers change; and the local ones.
std::vector<Var> GlobalVariables(const Scope& scope);
std::vector<Var> TrainableVariables(const Scope& scope);
std::vector<Var> LocalVariables(const Scope& scope);

// Runs the initializers of all variables made so far. Build it last.
Operation GlobalVariablesInitializer(const Scope& scope);
Operation LocalVariablesInitializer(const Scope& scope);

// The names of the variables made so far that have no value yet, as strings [n]: what a worker waits for that does not initialize them.
Output UninitializedVariables(const Scope& scope);
// The same of the given variables.
Output UninitializedVariables(const Scope& scope, const std::vector<Var>& variables);

// The number of training steps, an int64 named "global_step": made by the first call for a graph.
Var GlobalStep(const Scope& scope);

// What a training step should also run, such as the moving averages of BatchNorm:
// Optimizer::Minimize sees to it.
void AddUpdateOp(const Operation& op);
std::vector<Operation> UpdateOps(const Scope& scope);

// One op that has run when all of `ops` have.
Operation Group(const Scope& scope, const std::vector<Operation>& ops);

}  // namespace millrace
