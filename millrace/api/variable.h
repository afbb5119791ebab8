// Variables: tensors that persist across steps.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/initializers.h"
#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

namespace api_internal {
struct VariableAccess;
struct VariableNodes;
}  // namespace api_internal

// Which value the replicas of a strategy have of a variable.
enum class VariableSynchronization {
  kAuto,    // one for all: what they assign is aggregated at once
  kOnRead,  // each its own, which it assigns alone; the aggregate is what is read outside of the replicas, and saved
};

// What the value becomes that the replicas of a strategy assign to a variable, or add to it; of one that is
// synchronised on read, what is read.
enum class VariableAggregation {
  kNone,  // a replica must not assign it
  kSum,
  kMean,
  kFirstReplica,  // that of replica 0
};

struct VarOptions {
  DType dtype = DType::kFloat;
  // Whether optimizers update it by default.
  bool trainable = true;
  // Local to a worker, such as a counter of an input pipeline or a metric. It is placed with the scope's other ops,
  // even if a device function sends variables elsewhere; it is neither saved nor trained, and LocalVariablesInitializer
  // initializes it anew in each session.
  bool local = false;
  // For variables that the model itself updates, such as moving averages and metrics. Without a strategy both mean
  // nothing.
  VariableAggregation aggregation = VariableAggregation::kNone;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
};

// A variable that a program asks for, as variable getters and creators see it (Scope::WithVariableCreator).
struct VariableRequest {
  std::string name = {};  // in full: "layer1/kernel"
  PartialShape shape = {};
  // Called with `shape`, or with a scalar's if that is not fully known.
  Initializer initializer = nullptr;
  VarOptions options = {};
};

// A variable of the graph. Cheap to copy. As an Output it is the value that the step reads; whether that is before or
// after an assignment in the same step is unspecified unless control dependencies order them (see Read).
//
//   Var w(scope, "weights", {784, 10}, init::GlorotUniform());
//   Output y = ops::MatMul(scope, x, w);
//
// The full name ("layer1/weights") identifies it in checkpoints and among the sessions of a task.
class Var : public Output {
 public:
  Var() = default;
  Var(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
      const VarOptions& options = {});
  // The shape is that of the value; so is the type, unless the value is a literal that adapts to options.dtype.
  Var(const Scope& scope, absl::string_view name, const Input& initial_value, const VarOptions& options = {});

  // The resource handle, for ops that update variables.
  Output handle() const { return Output(scope(), handle_); }
  std::string var_name() const { return handle_.node == nullptr ? "" : handle_.node->name(); }
  bool trainable() const { return trainable_; }
  bool local() const { return local_; }
  // True if a variable scope found it, false if this Var made it. What belongs to a variable once, such as its
  // regularization, is added when this is false.
  bool reused() const { return reused_; }
  Operation initializer() const { return Operation(scope(), initializer_); }
  Output initial_value() const { return Output(scope(), initial_value_); }
  Output IsInitialized(const Scope& scope) const;

  // Adds a separate read that runs after the control dependencies of `scope`.
  Output Read(const Scope& scope) const;
  Operation Assign(const Scope& scope, const Input& value) const;
  Operation AssignAdd(const Scope& scope, const Input& delta) const;
  Operation AssignSub(const Scope& scope, const Input& delta) const;

  // The same variable with another tensor for its value, for variable getters: a cast, or a copy on another device.
  Var WithValue(const Output& value) const;

  // For the front end itself.
  Var(const Scope& scope, const api_internal::VariableNodes& nodes);

 private:
  friend struct api_internal::VariableAccess;
  // The type in memory, which that of the value may differ from.
  DType stored_type() const;
  Operation Change(const Scope& scope, const char* op, const Input& value) const;

  Endpoint handle_;
  Endpoint initial_value_;
  Node* initializer_ = nullptr;
  bool trainable_ = false;
  bool local_ = false;
  bool reused_ = false;
};

// In the order of creation: all variables of the graph except local ones; those of them that are trainable; the local
// ones.
std::vector<Var> GlobalVariables(const Scope& scope);
std::vector<Var> TrainableVariables(const Scope& scope);
std::vector<Var> LocalVariables(const Scope& scope);

// Runs the initializers of all variables created so far, so build it last.
Operation GlobalVariablesInitializer(const Scope& scope);
Operation LocalVariablesInitializer(const Scope& scope);

// The names of the variables created so far that are uninitialized, as strings [n]. Workers that do not initialize
// variables themselves wait until this is empty.
Output UninitializedVariables(const Scope& scope);
// The same for the given variables.
Output UninitializedVariables(const Scope& scope, const std::vector<Var>& variables);

// The number of training steps, an int64 variable named "global_step". Created by the first call for a graph.
Var GlobalStep(const Scope& scope);

// Ops that a training step must also run, such as the moving averages of BatchNorm; Optimizer::Minimize runs them.
void AddUpdateOp(const Operation& op);
std::vector<Operation> UpdateOps(const Scope& scope);

// An op that runs after all of `ops`.
Operation Group(const Scope& scope, const std::vector<Operation>& ops);

}  // namespace millrace
