// Sums over the replicas of all workers, as nodes of a graph.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/output.h"
#include "millrace/base/shard_tree.h"

namespace millrace {

// Which worker has which replica, and how their sums are exchanged.
struct ReplicaLayout {
  int rank = 0;
  int num_workers = 1;
  // The worker of each replica, ascending.
  std::vector<int> owners = {0};
  // Whether the order of additions is that of the shard tree. Otherwise each worker adds up its own replicas in a tree,
  // and `algorithm` adds the workers' sums.
  bool fixed_order = true;
  std::string algorithm = "auto";

  int num_replicas() const { return static_cast<int>(owners.size()); }
  // This worker's replicas.
  ShardRange local() const;
};

// Several tensors that are summed in one exchange: values[i] has the i-th tensor of each local replica.
struct ReplicaValues {
  std::string key = {};  // names the exchange in messages; the same on all workers
  std::vector<std::vector<Output>> values = {};
};

// The sums of each of the tensors, which must have one type. Additions of this worker's replicas are nodes of the
// graph; a collective op adds those of other workers, and has a place in the order of the graph's collective ops.
// Empty after an error, which is then the scope's.
std::vector<Output> SumOverReplicas(const Scope& scope, const ReplicaLayout& layout, const ReplicaValues& values);

// The tensors of the worker `root`, whose type all must have.
std::vector<Output> BroadcastTensors(const Scope& scope, const std::string& key, const std::vector<Output>& values,
                                     int root = 0);

// The collective ops so far that each step with these losses can run: those that need no other data (placeholders,
// queues, iterators) than the losses do.
std::vector<Operation> CollectiveOpsOfStep(const Scope& scope, const std::vector<Output>& losses);

}  // namespace millrace
