#include "millrace/api/variable_creation.h"

#include <algorithm>

#include "millrace/api/op_call.h"

namespace millrace::api_internal {

struct VariableAccess {
  static Var Reused(const Scope& scope, const VariableNodes& nodes) {
    Var variable(scope, nodes);
    variable.reused_ = true;
    return variable;
  }
};

namespace {

Var Nothing(const Scope& scope) { return Var().WithValue(Output(scope, Endpoint{})); }

Var Fail(const Scope& scope, const Status& status) {
  scope.UpdateStatus(status);
  return Nothing(scope);
}

bool IsPartitioned(const GraphState& state, absl::string_view name) {
  return std::any_of(state.slices.begin(), state.slices.end(),
                     [&](const auto& slice) { return slice.second.full_name == name; });
}

// Reserves exactly this name.
Status TakeExactly(const Scope& scope, const std::string& name) {
  if (TakeName(scope.WithPrefix(""), name) == name) return absl::OkStatus();
  return AlreadyExists("variable ", name, ": another node or scope of the graph has this name");
}

Var Make(const Scope& scope, const VariableRequest& request) {
  if (!scope.ok()) return Nothing(scope);
  if (request.initializer == nullptr)
    return Fail(scope, InvalidArgument("variable ", request.name, " has no initializer"));
  const VarOptions& options = request.options;
  // The nodes of a variable must not depend on ops of a step.
  const Scope outside = scope.WithoutControlDependencies().WithoutOpName();
  std::string full_name = request.name;
  if (SettingsOf(scope).variable_names() == nullptr) {
    full_name = TakeName(outside.WithPrefix(""), full_name);
  } else if (const Status taken = TakeExactly(outside, full_name); !taken.ok()) {
    return Fail(scope, taken);
  }
  const Scope inside = outside.WithPrefix(full_name);
  // The initial value is computed on the variable's device: build it in a scope without a device, which is filled in
  // below.
  const int before = scope.graph()->num_nodes();
  const Scope initializer = inside.WithPrefix(full_name + "/Initializer");
  const Shape shape = request.shape.IsFullyDefined() ? request.shape.AsShape() : Shape();
  Output initial = request.initializer(options.local ? initializer : initializer.WithoutDevice(), shape, options.dtype);
  // An existing tensor as the initial value does not determine the device of this scope's ops.
  if (options.local && !initial.empty() && scope.graph()->num_nodes() == before)
    initial = Op(initializer.WithOpName("initial_value"), "Identity", {initial});
  const int after = scope.graph()->num_nodes();
  if (!scope.ok()) return Nothing(scope);
  if (initial.empty()) return Fail(scope, InvalidArgument("the initial value of variable ", full_name, " is empty"));
  // A local variable is placed with its initial value, bypassing device functions that send variables elsewhere.
  const std::string own_device = initial.node()->requested_device();
  const Scope place = options.local ? outside.WithoutDevice().WithDevice(own_device) : outside;
  const Operation handle = AddOp(WithTakenName(place, full_name), "VarHandleOp", {},
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
  if (!scope.ok()) return Nothing(scope);
  VariableNodes nodes{.handle = handle.node(),
                      .value = value.endpoint(),
                      .initial_value = initial.endpoint(),
                      .initializer = assign.node(),
                      .trainable = options.trainable && !options.local,
                      .local = options.local};
  StateOf(scope).variables.push_back(nodes);
  return Var(scope, nodes);
}

using Functions = std::vector<VariableFunction> VariableSettings::*;
using LastFunction = Var (*)(const Scope& scope, const VariableRequest& request);

// Calls the innermost of the first `limit` functions of the scope, whose `next` calls the others and then `last`.
Var Call(const Scope& scope, const VariableRequest& request, Functions which, size_t limit, LastFunction last) {
  const ScopeSettings& settings = SettingsOf(scope);
  const size_t count = settings.variables == nullptr ? 0 : std::min(limit, ((*settings.variables).*which).size());
  if (count == 0 || !scope.ok()) return last(scope, request);
  // A variable that the function makes by itself must not call it again.
  ScopeSettings outer = settings;
  outer.ChangeVariables([&](VariableSettings& v) { (v.*which).resize(count - 1); });
  const VariableFunction function = ((*settings.variables).*which)[count - 1];
  Var variable = function(ScopeAccess::Of(std::move(outer)), request,
                          [=](const Scope& s, const VariableRequest& r) { return Call(s, r, which, count - 1, last); });
  if (variable.handle().empty() && scope.ok()) {
    return Fail(scope, InvalidArgument("a variable ", which == &VariableSettings::getters ? "getter" : "creator",
                                       " of scope '", scope.prefix(), "' returned no variable for ", request.name));
  }
  return variable;
}

// The variable that was made under this name, or that has it.
std::optional<VariableNodes> Find(const Scope& scope, const std::string& name) {
  const GraphState& state = StateOf(scope);
  const auto named = state.named_variables.find(name);
  const Node* const handle =
      named == state.named_variables.end() ? scope.graph()->FindNode(name) : named->second.handle;
  const auto at = std::find_if(state.variables.begin(), state.variables.end(),
                               [&](const VariableNodes& nodes) { return nodes.handle == handle; });
  if (handle == nullptr || at == state.variables.end()) return std::nullopt;
  VariableNodes found = *at;
  if (named != state.named_variables.end()) found.value = named->second.value;
  return found;
}

Status CheckSame(const VariableNodes& found, const VariableRequest& request) {
  const DType dtype = found.handle->AttrOr<DType>("dtype", DType::kInvalid);
  const PartialShape shape = found.handle->AttrOr<PartialShape>("shape", PartialShape());
  const auto text = [](bool local, DType d, const PartialShape& s) {
    return absl::StrCat(local ? "a local " : "", DTypeName(d), s.ToString());
  };
  if (dtype == request.options.dtype && shape.IsCompatibleWith(request.shape) && found.local == request.options.local)
    return absl::OkStatus();
  return InvalidArgument("variable ", request.name, " is ", text(found.local, dtype, shape),
                         ", and cannot be reused as ",
                         text(request.options.local, request.options.dtype, request.shape));
}

Var FindOrMake(const Scope& scope, const VariableRequest& request) {
  const auto make = [&] { return Call(scope, request, &VariableSettings::creators, static_cast<size_t>(-1), Make); };
  const VariableNames* const names = SettingsOf(scope).variable_names();
  if (names == nullptr || !scope.ok()) return make();
  if (const std::optional<VariableNodes> found = Find(scope, request.name)) {
    if (names->reuse == Reuse::kNo) {
      return Fail(scope, AlreadyExists("variable ", request.name, " exists already; give the variable scope '",
                                       names->prefix, "' Reuse::kYes or Reuse::kAuto to share it"));
    }
    if (const Status same = CheckSame(*found, request); !same.ok()) return Fail(scope, same);
    return VariableAccess::Reused(scope, *found);
  }
  if (IsPartitioned(StateOf(scope), request.name)) {
    return Fail(scope, InvalidArgument("variable ", request.name,
                                       " is partitioned, and cannot be reused as a whole one; see "
                                       "Scope::WithPartitioner"));
  }
  if (names->reuse == Reuse::kYes) {
    return Fail(scope, NotFound("variable ", request.name, " does not exist, and the variable scope '", names->prefix,
                                "' only reuses (Reuse::kYes); make it before, or use Reuse::kAuto"));
  }
  const Var made = make();
  if (!made.handle().empty()) StateOf(scope).named_variables[request.name] = {made.handle().node(), made.endpoint()};
  return made;
}

}  // namespace

std::string VariableName(const Scope& scope, absl::string_view name) {
  const VariableNames* const names = SettingsOf(scope).variable_names();
  const std::string& prefix = names == nullptr ? scope.prefix() : names->prefix;
  return prefix.empty() ? std::string(name) : absl::StrCat(prefix, "/", name);
}

Var GetVariable(const Scope& scope, const VariableRequest& request) {
  if (!scope.ok()) return Nothing(scope);
  return Call(scope, request, &VariableSettings::getters, static_cast<size_t>(-1), FindOrMake);
}

StatusOr<PartsScope> ReservePartitioned(const Scope& scope, absl::string_view name) {
  const Scope outside = scope.WithoutControlDependencies().WithoutOpName();
  const VariableNames* const names = SettingsOf(scope).variable_names();
  if (names == nullptr) {
    std::string taken = TakeName(outside, name);
    return PartsScope{taken, outside.WithPrefix(taken)};
  }
  std::string full_name = VariableName(scope, name);
  if (Find(scope, full_name))
    return InvalidArgument("variable ", full_name, " is whole, and cannot be reused as a partitioned one");
  if (!IsPartitioned(StateOf(scope), full_name) && names->reuse != Reuse::kYes)
    MR_RETURN_IF_ERROR(TakeExactly(outside, full_name));
  ScopeSettings inside = SettingsOf(outside);
  inside.prefix = full_name;
  inside.ChangeVariables([&](VariableSettings& v) { v.names->prefix = full_name; });
  return PartsScope{full_name, ScopeAccess::Of(std::move(inside))};
}

}  // namespace millrace::api_internal
