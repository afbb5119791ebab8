// Assignments of variables by a strategy's replicas, which become one for all of them.
#pragma once

#include <vector>

#include "millrace/api/replica.h"
#include "millrace/strategy/shard_reducer.h"

namespace millrace {

// What replicas with these weights (PerReplica) contribute to a sum: their values if they have examples, otherwise
// zeros; to a mean: the values times the weights. Without weights, the values.
std::vector<Output> Counted(const Scope& scope, const std::vector<Output>& values, const std::vector<Output>& weights,
                            bool mean);

// The mean of `sum` over `n`. The scope fails with INVALID_ARGUMENT for integers.
Output MeanOf(const Scope& scope, const Output& sum, int n);

// Adds the common assignments of the local replicas. The scope fails with INVALID_ARGUMENT, naming the variable, if it
// has no aggregation or the replicas do different things.
void MergeAssignments(const Scope& scope, const ReplicaLayout& layout,
                      const api_internal::ReplicaAssignments& assignments,
                      const api_internal::VariableAggregations& aggregations);

}  // namespace millrace
