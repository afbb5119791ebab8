// SyncReplicasOptimizer in fixed order. Internal to train/sync/.
#pragma once

#include <memory>
#include <vector>

#include "millrace/api/replica.h"
#include "millrace/train/sync/sync_replicas_nodes.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"

namespace millrace {

// INVALID_ARGUMENT for options that make no sense together.
Status CheckShards(const SyncReplicasOptions& options);
// Which worker has which shard, and this worker's shards.
std::vector<int> ShardOwners(const SyncReplicasOptions& options);
ShardRange LocalShards(const SyncReplicasOptions& options);

// The model of this worker's shards.
class ShardModel {
 public:
  // The losses; none if the scope has an error.
  std::vector<Output> Build(const Scope& scope, const SyncReplicasOptions& options,
                            const SyncReplicasOptimizer::ShardFn& model);
  const std::vector<Scope>& scopes() const { return scopes_; }  // of the shards
  const api_internal::ReplicaAssignments& assignments() const { return *assignments_; }
  const api_internal::VariableAggregations& aggregations() const { return *aggregations_; }

 private:
  std::vector<Scope> scopes_;
  const std::shared_ptr<api_internal::ReplicaAssignments> assignments_ =
      std::make_shared<api_internal::ReplicaAssignments>();
  const std::shared_ptr<api_internal::VariableAggregations> aggregations_ =
      std::make_shared<api_internal::VariableAggregations>();
};

// The op that a worker runs; `nodes` gets the nodes beside it. Empty if the scope has an error.
Operation MinimizeShards(const Scope& scope, const SyncReplicasOptions& sync, const ShardModel& model,
                         const std::vector<Output>& losses, Optimizer& optimizer, const MinimizeOptions& options,
                         std::shared_ptr<SyncReplicasNodes>* nodes);

}  // namespace millrace
