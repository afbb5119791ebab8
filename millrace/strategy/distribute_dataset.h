// The examples of one worker's replicas.
#pragma once

#include <memory>

#include "millrace/collective/shard_tree.h"
#include "millrace/data/dataset.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

// What Strategy::DistributeDataset and DistributeFiles return for the replicas `local` of `num_replicas`.
StatusOr<Dataset> ExamplesOfReplicas(const Dataset& examples, int num_replicas, collective::ShardRange local,
                                     const DistributeOptions& options);
StatusOr<Dataset> FilesOfReplicas(const Dataset& files, const FlatMapFn& open, int num_replicas,
                                  collective::ShardRange local, const DistributeOptions& options);

// Ends when the iterator of any worker ends. `workers` must outlive it.
std::unique_ptr<DatasetIterator> EndsTogether(std::unique_ptr<DatasetIterator> iterator, WorkerGroup* workers);

}  // namespace millrace
