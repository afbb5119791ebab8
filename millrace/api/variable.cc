#include "millrace/api/variable.h"

#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"

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
  Build(
      scope, name, [&](const Scope& inside) { return init(inside, shape, options.dtype); }, options);
}

Var::Var(const Scope& scope, absl::string_view name, const Input& initial_value, const VarOptions& options)
    : Output(scope, Endpoint{}) {
  if (initial_value.is_nothing()) {
    scope.UpdateStatus(InvalidArgument("variable ", name, " in scope '", scope.prefix(), "' has no initial value"));
    return;
  }
  Build(
      scope, name,
      [&](const Scope& inside) { return initial_value.In(inside.WithOpName("initial_value"), options.dtype); },
      options);
}

void Var::Build(const Scope& scope, absl::string_view name, const MakeInitialValue& make, const VarOptions& options) {
  if (!scope.ok()) return;
  // The nodes of a variable must not depend on ops of a step.
  const Scope outside = scope.WithoutControlDependencies().WithoutOpName();
  const std::string full_name = api_internal::TakeName(outside, name);
  const Scope inside = outside.WithPrefix(full_name);
  // The initial value is computed on the variable's device: build it in a scope without a device, which is filled in
  // below.
  const int before = scope.graph()->num_nodes();
  const Scope initializer = inside.WithPrefix(full_name + "/Initializer");
  Output initial = make(options.local ? initializer : initializer.WithoutDevice());
  // An existing tensor as the initial value does not determine the device of this scope's ops.
  if (options.local && !initial.empty() && scope.graph()->num_nodes() == before)
    initial = Op(initializer.WithOpName("initial_value"), "Identity", {initial});
  const int after = scope.graph()->num_nodes();
  if (!scope.ok()) return;
  if (initial.empty()) {
    scope.UpdateStatus(InvalidArgument("the initial value of variable ", full_name, " is empty"));
    return;
  }
  // A local variable is placed with its initial value, bypassing device functions that send variables elsewhere.
  const std::string own_device = initial.node()->requested_device();
  const Scope place = options.local ? outside.WithoutDevice().WithDevice(own_device) : outside;
  const Operation handle = AddOp(api_internal::WithTakenName(place, full_name), "VarHandleOp", {},
                                 {{"dtype", initial.dtype()}, {"shape", initial.shape()}, {"shared_name", full_name}});
  for (int i = before; !handle.empty() && i < after; ++i) {
    Node* node = scope.graph()->nodes()[i];
    if (node->requested_device().empty()) scope.graph()->SetRequestedDevice(node, handle.node()->requested_device());
  }
  const Scope beside = handle.empty() ? inside : inside.ColocateWith(handle);
  const Operation assign =
      AddOp(beside.WithOpName("Assign"), "AssignVariableOp", {handle.output(0), initial}, {{"dtype", initial.dtype()}});
  const Output value =
      Op(beside.WithPrefix(full_name + "/Read"), "ReadVariableOp", {handle.output(0)}, {{"dtype", initial.dtype()}});
  if (!scope.ok()) return;
  VariableNodes nodes{.handle = handle.node(),
                      .value = value.endpoint(),
                      .initial_value = initial.endpoint(),
                      .initializer = assign.node(),
                      .trainable = options.trainable && !options.local,
                      .local = options.local};
  api_internal::StateOf(scope).variables.push_back(nodes);
  *this = Var(scope, nodes);
}

Output Var::IsInitialized(const Scope& scope) const { return Op(scope, "VarIsInitializedOp", {handle()}); }

Output Var::Read(const Scope& scope) const { return Op(scope, "ReadVariableOp", {handle()}, {{"dtype", dtype()}}); }
Operation Var::Assign(const Scope& scope, const Input& value) const {
  return AddOp(scope, "AssignVariableOp", {handle(), value}, {{"dtype", dtype()}});
}
Operation Var::AssignAdd(const Scope& scope, const Input& delta) const {
  return AddOp(scope, "AssignAddVariableOp", {handle(), delta}, {{"dtype", dtype()}});
}
Operation Var::AssignSub(const Scope& scope, const Input& delta) const {
  return AddOp(scope, "AssignSubVariableOp", {handle(), delta}, {{"dtype", dtype()}});
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
  for (const Var& variable : variables) all.push_back(variable.initializer());
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
    state.global_step = state.variables.size() - 1;
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
