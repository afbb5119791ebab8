// Variables of which each replica has a copy, and whose aggregate is what others read
// (VariableSynchronization::kOnRead).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/strategy/shard_reducer.h"

namespace millrace {

// Those of one graph. A variable has a local variable for each replica of this worker ("count/replica_3") and one under
// its own name, which is saved: it has the aggregate as of the last training step. When a session begins, the copies
// get values whose aggregate is that value: the first replica of all has a sum, and the others zeros.
class OnReadVariables {
 public:
  // Attaches an object to the graph of `scope` and returns a scope in which it is asked for such variables.
  static Scope Attach(const Scope& scope, const ReplicaLayout& layout, const std::vector<std::string>& devices);
  // Null if the graph has none.
  static const OnReadVariables* Of(const Scope& scope);

  // `devices` has the device of each local replica.
  OnReadVariables(ReplicaLayout layout, std::vector<std::string> devices)
      : layout_(std::move(layout)), devices_(std::move(devices)) {}

  // What a scope gets that asks for such a variable: in a replica its copy, elsewhere the saved variable, whose value
  // is the aggregate. All workers ask in the same order.
  Var Get(const Scope& scope, const VariableRequest& request, const NextVariable& next);

  // The aggregate, if `variable` is one of them or a copy, in one exchange that runs after the scope's control
  // dependencies. Otherwise empty.
  Output Read(const Scope& scope, const Var& variable) const;
  // Ops that give the saved variables their aggregates: of those that one of `updates` assigns, after `updates`.
  std::vector<Operation> Save(const Scope& scope, const std::vector<Operation>& updates) const;
  // Ops that give the copies their values from the saved variables.
  std::vector<Operation> Initializers(const Scope& scope) const;

 private:
  // Without handles, which would keep the graph alive.
  struct Variable {
    api_internal::VariableNodes saved;
    VariableAggregation aggregation = VariableAggregation::kNone;
    std::vector<api_internal::VariableNodes> copies = {};  // of the local replicas
  };
  Var MakeCopy(const Scope& scope, const VariableRequest& request, const Var& saved, int index,
               const NextVariable& next) const;
  const Variable* Find(const Var& variable) const;
  // In one exchange for each type. Empty after an error, which is then the scope's.
  std::vector<Output> Aggregates(const Scope& scope, const std::vector<const Variable*>& variables) const;

  const ReplicaLayout layout_;
  const std::vector<std::string> devices_;
  absl::flat_hash_map<std::string, std::unique_ptr<Variable>> by_name_;
  std::vector<const Variable*> order_;
};

}  // namespace millrace
