// State shared by the scopes of one graph. Internal to the front end.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/api/scope.h"
#include "millrace/api/variable_slice.h"
#include "millrace/base/status.h"
#include "millrace/graph/graph.h"

namespace millrace::api_internal {

// The nodes of a variable. Non-owning pointers: handles own the state, not the reverse.
struct VariableNodes {
  Node* handle = nullptr;
  Endpoint value;
  Endpoint initial_value;
  Node* initializer = nullptr;
  bool trainable = false;
  bool local = false;
};

// What a variable scope found under a name: a variable of the graph, and the tensor that stands for its value, which a
// variable creator may have replaced.
struct NamedVariable {
  const Node* handle = nullptr;
  Endpoint value;
};

// A term of the total loss, and the replica of a strategy that it belongs to; -1 if none.
struct RecordedLoss {
  Endpoint value;
  int replica = -1;
};

struct GraphState {
  Graph graph;
  Status status;
  // The nesting depth of function bodies, each of which is a graph of its own.
  int depth = 0;
  const GraphState* outer = nullptr;  // the graph around the function body; its tensors may be captured
  std::string function_name;          // of the function whose body this is; the prefix of nested functions' names
  // How often each full name was requested; node names and sub-scopes share one namespace.
  absl::flat_hash_map<std::string, int> names;
  std::optional<int64_t> random_seed;
  // How often each name asked for a seed (ScopeSettings::seeds_by_name).
  absl::flat_hash_map<std::string, int> seed_names;

  std::vector<VariableNodes> variables;
  // What variable scopes made, by the name that was asked for.
  absl::flat_hash_map<std::string, NamedVariable> named_variables;
  // Ops that a training step runs besides the optimizer's updates: moving averages.
  std::vector<Node*> update_ops;
  std::vector<RecordedLoss> losses;
  std::vector<Node*> table_initializers;  // see lookup_table.h
  std::vector<Endpoint> regularization_losses;
  std::optional<size_t> global_step;  // index into `variables`
  // What higher layers attach to a graph, by name; must not hold handles, as above.
  absl::flat_hash_map<std::string, std::shared_ptr<void>> collections;
  std::vector<Endpoint> summaries;
  // Parts of partitioned variables, by handle. A std::map, because pointers to the values must stay valid.
  std::map<const Node*, VariableSlice> slices;
  // The part whose initial value is being built, for initializers that depend on the whole shape; otherwise null.
  const VariableSlice* initializing = nullptr;

  // True for this graph and those around it.
  bool MayUse(const GraphState& other) const {
    const GraphState* at = this;
    while (at != nullptr && at != &other) at = at->outer;
    return at != nullptr;
  }
};

// A WithDeviceFunction, and the device of the scope around it.
struct ScopedDeviceFunction {
  DeviceFunction choose;
  std::string outer_device;
};

// Names of variables in a variable scope.
struct VariableNames {
  std::string prefix;
  Reuse reuse = Reuse::kNo;
  // The names of the sub-scopes so far, so that layers without a name get dense, dense_1 and so on. Shared by the
  // copies of a scope.
  std::shared_ptr<absl::flat_hash_set<std::string>> opened = nullptr;
};

// How variables are made. Immutable; null in a scope that says nothing about it.
struct VariableSettings {
  std::optional<VariableNames> names;     // of a variable scope
  std::vector<VariableFunction> getters;  // outermost first
  std::vector<VariableFunction> creators;
  Partitioner partitioner;
};

struct ReplicaSettings;  // replica.h

struct ScopeSettings {
  std::shared_ptr<GraphState> state;
  std::string prefix;
  std::string op_name;
  // A full name reserved by TakeName, used unchanged for the next node.
  std::string taken_name;
  std::string device;                                  // set since the innermost device function
  std::vector<ScopedDeviceFunction> device_functions;  // outermost first
  std::vector<Node*> control_inputs;
  std::vector<std::string> colocate_with;
  std::shared_ptr<const VariableSettings> variables;
  // Derive the seeds of random ops from their names instead of from the number of nodes.
  bool seeds_by_name = false;
  // Null outside of a strategy's replicas.
  std::shared_ptr<const ReplicaSettings> replica;

  const VariableNames* variable_names() const {
    return variables != nullptr && variables->names ? &*variables->names : nullptr;
  }
  // Replaces `variables` by a changed copy.
  template <typename Change>
  void ChangeVariables(Change change) {
    auto changed =
        variables == nullptr ? std::make_shared<VariableSettings>() : std::make_shared<VariableSettings>(*variables);
    change(*changed);
    variables = std::move(changed);
  }
};

// Access to a scope for the front end and train/; not for programs.
struct ScopeAccess {
  static GraphState& State(const Scope& scope) { return scope.state(); }
  static const ScopeSettings& Settings(const Scope& scope) { return *scope.settings_; }
  static std::string TakeName(const Scope& scope, absl::string_view name) { return scope.TakeName(name); }
  static Scope WithTakenName(const Scope& scope, absl::string_view full_name);
  static Scope Of(ScopeSettings settings) { return Scope(std::make_shared<const ScopeSettings>(std::move(settings))); }
  static bool IsNull(const Scope& scope) { return scope.settings_ == nullptr; }
};

inline GraphState& StateOf(const Scope& scope) { return ScopeAccess::State(scope); }
inline const ScopeSettings& SettingsOf(const Scope& scope) { return ScopeAccess::Settings(scope); }
// True for the scope of a default-constructed Output. No method of such a scope may be called.
inline bool IsNull(const Scope& scope) { return ScopeAccess::IsNull(scope); }
// TakeName reserves the full name that a node called `name` would get; the scope below gives it to its next node.
inline std::string TakeName(const Scope& scope, absl::string_view name) { return ScopeAccess::TakeName(scope, name); }
inline Scope WithTakenName(const Scope& scope, absl::string_view full_name) {
  return ScopeAccess::WithTakenName(scope, full_name);
}

// Sets the requested device of a new node from its scope. A colocated node requests what the other node requested. So
// does a node that takes a resource handle whose device was requested: it cannot run anywhere else.
Status AskForDevice(const ScopeSettings& settings, Node* node);

}  // namespace millrace::api_internal
