#include "millrace/api/variable.h"

#include <algorithm>

#include "millrace/api/op_call.h"
#include "millrace/api/replica.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable_creation.h"

namespace millrace {

using api_internal::VariableNodes;

Var::Var(const Scope& scope, const VariableNodes& nodes)
    : Output(scope.WithoutOpName(), nodes.value),
      handle_(nodes.handle->output(0)),
      initial_value_(nodes.initial_value),
      initializer_(nodes.initializer),
      trainable_(nodes.trainable),
      local_(nodes.local) {}

Var::Var(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
         const VarOptions& options)
    : Output(scope, Endpoint{}) {
  *this = api_internal::GetVariable(
      scope,
      {.name = api_internal::VariableName(scope, name), .shape = shape, .initializer = init, .options = options});
}

Var::Var(const Scope& scope, absl::string_view name, const Input& initial_value, const VarOptions& options)
    : Output(scope, Endpoint{}) {
  if (initial_value.is_nothing()) {
    scope.UpdateStatus(InvalidArgument("variable ", name, " in scope '", scope.prefix(), "' has no initial value"));
    return;
  }
  VariableRequest request{.name = api_internal::VariableName(scope, name), .options = options};
  request.shape = initial_value.is_output() ? initial_value.output().shape() : initial_value.literal().shape();
  if (initial_value.dtype() != DType::kInvalid) request.options.dtype = initial_value.dtype();
  request.initializer = [initial_value](const Scope& inside, const Shape&, DType dtype) {
    return initial_value.In(inside.WithOpName("initial_value"), dtype);
  };
  *this = api_internal::GetVariable(scope, request);
}

Var Var::WithValue(const Output& value) const {
  Var other = *this;
  static_cast<Output&>(other) = value;
  return other;
}

DType Var::stored_type() const {
  return handle_.node == nullptr ? dtype() : handle_.node->AttrOr<DType>("dtype", dtype());
}

namespace {

// Graphs of TensorFlow 1 that were imported have variables that are references, with ops of their own.
bool IsReference(const Endpoint& handle) { return handle.node != nullptr && IsRef(handle.dtype()); }

const char* ReferenceOp(absl::string_view op) {
  return op == "AssignVariableOp" ? "Assign" : op == "AssignAddVariableOp" ? "AssignAdd" : "AssignSub";
}

}  // namespace

Output Var::IsInitialized(const Scope& scope) const {
  return Op(scope, IsReference(handle_) ? "IsVariableInitialized" : "VarIsInitializedOp", {handle()});
}

Output Var::Read(const Scope& scope) const {
  if (IsReference(handle_)) return Op(scope, "Identity", {handle()});
  return Op(scope, "ReadVariableOp", {handle()}, {{"dtype", stored_type()}});
}
Operation Var::Change(const Scope& scope, const char* op, const Input& value) const {
  const std::shared_ptr<const api_internal::ReplicaSettings>& replica = api_internal::SettingsOf(scope).replica;
  if (replica != nullptr && replica->assign != nullptr && !local_ && scope.ok()) {
    return replica->assign(scope, *this, op, value.In(scope.WithoutOpName(), stored_type()));
  }
  if (replica != nullptr && replica->weight && local_ && scope.ok()) {
    const Scope s = scope.WithoutOpName();
    return AddOp(scope, op, {handle(), api_internal::OnlyWithExamples(s, *this, op, value.In(s, stored_type()))},
                 {{"dtype", stored_type()}});
  }
  if (IsReference(handle_)) return AddOp(scope, ReferenceOp(op), {handle(), value}, {{"T", stored_type()}});
  return AddOp(scope, op, {handle(), value}, {{"dtype", stored_type()}});
}
Operation Var::Assign(const Scope& scope, const Input& value) const { return Change(scope, "AssignVariableOp", value); }
Operation Var::AssignAdd(const Scope& scope, const Input& delta) const {
  return Change(scope, "AssignAddVariableOp", delta);
}
Operation Var::AssignSub(const Scope& scope, const Input& delta) const {
  return Change(scope, "AssignSubVariableOp", delta);
}

std::vector<Var> GlobalVariables(const Scope& scope) {
  std::vector<Var> result;
  for (const VariableNodes& nodes : api_internal::StateOf(scope).variables) {
    if (!nodes.local) result.emplace_back(scope, nodes);
  }
  return result;
}

std::vector<Var> LocalVariables(const Scope& scope) {
  std::vector<Var> result;
  for (const VariableNodes& nodes : api_internal::StateOf(scope).variables) {
    if (nodes.local) result.emplace_back(scope, nodes);
  }
  return result;
}

std::vector<Var> TrainableVariables(const Scope& scope) {
  std::vector<Var> result;
  for (const VariableNodes& nodes : api_internal::StateOf(scope).variables) {
    if (nodes.trainable) result.emplace_back(scope, nodes);
  }
  return result;
}

namespace {

Operation InitializerOf(const Scope& scope, const std::vector<Var>& variables, absl::string_view name) {
  std::vector<Operation> all;
  for (const Var& variable : variables) {
    if (!variable.initializer().empty()) all.push_back(variable.initializer());  // an imported one may have none
  }
  return Group(scope.op_name().empty() ? scope.WithOpName(name) : scope, all);
}

}  // namespace

Operation GlobalVariablesInitializer(const Scope& scope) {
  return InitializerOf(scope, GlobalVariables(scope), "init");
}
Operation LocalVariablesInitializer(const Scope& scope) {
  return InitializerOf(scope, LocalVariables(scope), "local_init");
}

Output UninitializedVariables(const Scope& scope) { return UninitializedVariables(scope, GlobalVariables(scope)); }

Output UninitializedVariables(const Scope& scope, const std::vector<Var>& variables) {
  const Scope s = scope.ForComposite("uninitialized_variables");
  std::vector<std::string> names;
  std::vector<Input> initialized;
  for (const Var& variable : variables) {
    names.push_back(variable.var_name());
    initialized.push_back(variable.IsInitialized(s));
  }
  if (variables.empty()) return Input(Tensor(DType::kString, Shape({0}))).In(s.WithOpName("names"));
  const Output missing = Op(s, "Where", {Op(s, "LogicalNot", {Op(s, "Pack", {InputList(initialized)})})});
  const Output rows = Op(s, "Reshape", {missing, std::vector<int32_t>{-1}});
  return Op(s.WithOpName("names"), "GatherV2", {names, rows, 0});
}

Var GlobalStep(const Scope& scope) {
  auto& state = api_internal::StateOf(scope);
  if (!state.global_step) {
    const Var made(scope.WithPrefix(""), "global_step", Input(0), {.dtype = DType::kInt64, .trainable = false});
    if (made.empty()) return made;
    // Not always the last: a variable creator may have made others.
    const auto at = std::find_if(state.variables.begin(), state.variables.end(),
                                 [&](const VariableNodes& nodes) { return nodes.handle == made.handle().node(); });
    state.global_step = static_cast<size_t>(at - state.variables.begin());
  }
  return Var(scope, state.variables[*state.global_step]);
}

void AddUpdateOp(const Operation& op) {
  if (!op.empty()) api_internal::StateOf(op.scope()).update_ops.push_back(op.node());
}

std::vector<Operation> UpdateOps(const Scope& scope) {
  std::vector<Operation> result;
  for (Node* node : api_internal::StateOf(scope).update_ops) result.emplace_back(scope, node);
  return result;
}

Operation Group(const Scope& scope, const std::vector<Operation>& ops) {
  return AddOp(scope.WithControlDependencies(ops), "NoOp", {});
}

}  // namespace millrace
