// The gradients of a strategy's replicas, averaged over all workers in a few exchanges.
#pragma once

#include <vector>

#include "millrace/api/optimizer.h"
#include "millrace/strategy/shard_reducer.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

struct BucketOptions {
  int64_t bucket_bytes = int64_t{4} << 20;
  int num_packs = 0;  // if positive, the number of buckets instead
};

// The gradients of the mean of all replicas' losses with respect to `variables` (all trainable ones if empty). Those
// that the backward pass computes first are exchanged first, while it goes on. The scope fails with INVALID_ARGUMENT if
// a loss is not a scalar, or if only some replicas have a gradient for a variable.
std::vector<GradAndVar> MeanGradients(const Scope& scope, const ReplicaLayout& layout, const PerReplica& losses,
                                      std::vector<Var> variables, const BucketOptions& options);

}  // namespace millrace
