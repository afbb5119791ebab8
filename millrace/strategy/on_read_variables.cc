#include "millrace/strategy/on_read_variables.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/replica.h"
#include "millrace/strategy/replica_assignments.h"

namespace millrace {

using api_internal::VariableNodes;

namespace {

constexpr char kCollection[] = "on_read_variables";

VariableNodes NodesOf(const Var& variable) {
  return {.handle = variable.handle().node(),
          .value = variable.endpoint(),
          .initial_value = variable.initial_value().endpoint(),
          .initializer = variable.initializer().node(),
          .trainable = variable.trainable(),
          .local = variable.local()};
}

// The same scope outside of the replica.
Scope OutOfReplica(const Scope& scope) {
  api_internal::ScopeSettings settings = api_internal::SettingsOf(scope);
  settings.replica = nullptr;
  return api_internal::ScopeAccess::Of(std::move(settings));
}

}  // namespace

Scope OnReadVariables::Attach(const Scope& scope, const ReplicaLayout& layout,
                              const std::vector<std::string>& devices) {
  const auto made = std::make_shared<OnReadVariables>(layout, devices);
  api_internal::StateOf(scope).collections[kCollection] = made;
  return scope.WithVariableGetter([made](const Scope& s, const VariableRequest& request, const NextVariable& next) {
    const bool on_read = request.options.synchronization == VariableSynchronization::kOnRead;
    return on_read ? made->Get(s, request, next) : next(s, request);
  });
}

const OnReadVariables* OnReadVariables::Of(const Scope& scope) {
  const auto& all = api_internal::StateOf(scope).collections;
  const auto found = all.find(kCollection);
  return found == all.end() ? nullptr : static_cast<const OnReadVariables*>(found->second.get());
}

Var OnReadVariables::MakeCopy(const Scope& scope, const VariableRequest& request, const Var& saved, int index,
                              const NextVariable& next) const {
  const int replica = layout_.local().first + index;
  VariableRequest copy = request;
  copy.name = absl::StrCat(request.name, "/replica_", replica);
  copy.options.local = true;
  copy.options.trainable = false;
  copy.options.synchronization = VariableSynchronization::kAuto;
  const bool has_value = request.options.aggregation != VariableAggregation::kSum || replica == 0;
  if (request.options.local) {
    // What is local is not restored, and all of it gets its first value in one step: the copy cannot wait for another.
    if (!has_value) copy.initializer = init::Zeros();
  } else {
    copy.initializer = [saved, has_value](const Scope& inside, const Shape&, DType) {
      // An op of the copy's device: the read is where the saved variable is.
      return Op(inside.WithOpName("initial_value"), has_value ? "Identity" : "ZerosLike", {saved.Read(inside)});
    };
  }
  return next(scope.WithDevice(devices_[index]), copy);
}

Var OnReadVariables::Get(const Scope& scope, const VariableRequest& request, const NextVariable& next) {
  const std::shared_ptr<const api_internal::ReplicaSettings>& replica = api_internal::SettingsOf(scope).replica;
  const Scope outside = OutOfReplica(scope).WithReuse(Reuse::kAuto);
  std::unique_ptr<Variable>& variable = by_name_[request.name];
  if (variable == nullptr) {
    if (request.options.aggregation == VariableAggregation::kNone) {
      scope.UpdateStatus(InvalidArgument("variable ", request.name,
                                         " is synchronised on read and has no aggregation (VarOptions::aggregation)"));
      return Var();
    }
    VariableRequest saved = request;
    saved.options.synchronization = VariableSynchronization::kAuto;
    saved.options.trainable = false;
    const Var made = next(outside, saved);
    if (!scope.ok()) return Var();
    Variable all{.saved = NodesOf(made), .aggregation = request.options.aggregation};
    for (int i = 0; i < layout_.local().size(); ++i) {
      const Var copy = MakeCopy(outside, request, made, i, next);
      if (!scope.ok()) return Var();
      all.copies.push_back(NodesOf(copy));
    }
    variable = std::make_unique<Variable>(std::move(all));
    order_.push_back(variable.get());
  }
  if (replica != nullptr) return Var(scope, variable->copies[replica->number - layout_.local().first]);
  const std::vector<Output> value = Aggregates(outside.ForComposite("read_variable"), {variable.get()});
  return value.empty() ? Var() : Var(scope, variable->saved).WithValue(value[0]);
}

const OnReadVariables::Variable* OnReadVariables::Find(const Var& variable) const {
  const Node* const handle = variable.handle().node();
  for (const Variable* each : order_) {
    if (each->saved.handle == handle) return each;
    for (const VariableNodes& copy : each->copies) {
      if (copy.handle == handle) return each;
    }
  }
  return nullptr;
}

std::vector<Output> OnReadVariables::Aggregates(const Scope& s, const std::vector<const Variable*>& variables) const {
  std::vector<Output> results(variables.size());
  std::map<DType, std::vector<size_t>> sums;
  for (size_t i = 0; i < variables.size() && s.ok(); ++i) {
    const Variable& variable = *variables[i];
    if (variable.aggregation != VariableAggregation::kFirstReplica) {
      sums[variable.saved.value.dtype()].push_back(i);
      continue;
    }
    results[i] = Var(s, variable.copies[0]).Read(s);
    if (layout_.num_workers == 1) continue;
    const std::vector<Output> received =
        BroadcastTensors(s, absl::StrCat("value of ", variable.saved.handle->name()), {results[i]});
    if (!received.empty()) results[i] = received[0];
  }
  for (const auto& [dtype, which] : sums) {
    ReplicaValues all{.key = absl::StrCat("copies of ", variables[which[0]]->saved.handle->name(), " and ",
                                          which.size() - 1, " more variables")};
    for (const size_t i : which) {
      std::vector<Output>& of_one = all.values.emplace_back();
      for (const VariableNodes& copy : variables[i]->copies) of_one.push_back(Var(s, copy).Read(s));
    }
    const std::vector<Output> totals = SumOverReplicas(s, layout_, all);
    if (!s.ok()) return {};
    for (size_t n = 0; n < which.size(); ++n) {
      const bool mean = variables[which[n]]->aggregation == VariableAggregation::kMean;
      results[which[n]] = mean ? MeanOf(s, totals[n], layout_.num_replicas()) : totals[n];
    }
  }
  return s.ok() ? results : std::vector<Output>();
}

Output OnReadVariables::Read(const Scope& scope, const Var& variable) const {
  const Variable* const found = Find(variable);
  if (found == nullptr) return Output();
  const std::vector<Output> value = Aggregates(scope.ForComposite("read_variable"), {found});
  return value.empty() ? Output(scope, Endpoint{}) : value[0];
}

std::vector<Operation> OnReadVariables::Save(const Scope& scope, const std::vector<Operation>& updates) const {
  // What an update assigns: a local variable, by itself or behind nodes that group several.
  absl::flat_hash_set<const Node*> seen, handles;
  std::vector<const Node*> open;
  for (const Operation& update : updates) open.push_back(update.node());
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->num_inputs() > 0 && node->input(0).node->type() == "VarHandleOp" && node->num_outputs() == 0)
      handles.insert(node->input(0).node);
    for (const Node* before : node->control_inputs()) open.push_back(before);
  }
  std::vector<const Variable*> updated;
  for (const Variable* each : order_) {
    const auto assigned = [&](const VariableNodes& copy) { return handles.contains(copy.handle); };
    if (std::any_of(each->copies.begin(), each->copies.end(), assigned)) updated.push_back(each);
  }
  if (updated.empty()) return {};
  const Scope s = scope.WithControlDependencies(updates).SubScope("save_variables");
  const std::vector<Output> values = Aggregates(s, updated);
  std::vector<Operation> saved;
  for (size_t i = 0; i < values.size(); ++i) saved.push_back(Var(s, updated[i]->saved).Assign(s, values[i]));
  return saved;
}

std::vector<Operation> OnReadVariables::Initializers(const Scope& scope) const {
  std::vector<Operation> all;
  for (const Variable* each : order_) {
    for (const VariableNodes& copy : each->copies) all.emplace_back(scope, copy.initializer);
  }
  return all;
}

}  // namespace millrace
