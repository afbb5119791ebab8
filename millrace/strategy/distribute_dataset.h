// The examples of one worker's replicas.
#pragma once

#include <memory>

#include "millrace/base/shard_tree.h"
#include "millrace/data/dataset.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

// What Strategy::DistributeDataset and DistributeFiles return for the replicas `local` of `num_replicas`.
StatusOr<Dataset> ExamplesOfReplicas(const Dataset& examples, int num_replicas, ShardRange local,
                                     const DistributeOptions& options);
StatusOr<Dataset> FilesOfReplicas(const Dataset& files, const FlatMapFn& open, int num_replicas, ShardRange local,
                                  const DistributeOptions& options);

// Ends when the iterator of any worker ends. If `partial` is not 0, its elements are those of that many replicas with
// their numbers of examples, and it ends when those of all workers have: a worker that has come to its end gets its
// last element again, without examples. `workers` must outlive it.
std::unique_ptr<DatasetIterator> EndsTogether(std::unique_ptr<DatasetIterator> iterator, WorkerGroup* workers,
                                              int partial = 0);

}  // namespace millrace
