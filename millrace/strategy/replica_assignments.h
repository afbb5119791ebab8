// Assignments of variables by a strategy's replicas, which become one for all of them.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/api/variable.h"
#include "millrace/strategy/shard_reducer.h"

namespace millrace {

// How each variable is aggregated, by its handle.
using VariableAggregations = absl::flat_hash_map<const Node*, VariableAggregation>;

// The mean of `sum` over `n`. The scope fails with INVALID_ARGUMENT for integers.
Output MeanOf(const Scope& scope, const Output& sum, int n);

// What the local replicas assign while the model is built for them, one replica after another.
class ReplicaAssignments {
 public:
  void BeginReplica() { replicas_.emplace_back(); }
  // Returns an op of this replica that runs after the assignment that all replicas have in common.
  Operation Add(const Scope& scope, const Var& variable, const char* op, const Output& value);
  // Adds the common assignments. The scope fails with INVALID_ARGUMENT, naming the variable, if it has no aggregation
  // or the replicas do different things.
  void Merge(const Scope& scope, const ReplicaLayout& layout, const VariableAggregations& aggregations);

 private:
  struct Assignment {
    Var variable;
    std::string op;
    Output value;
    Operation done;
  };
  std::vector<std::vector<Assignment>> replicas_;
  bool merged_ = false;
};

}  // namespace millrace
