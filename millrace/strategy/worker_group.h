// The workers of a job as a group that computes together, without a parameter server:
//
//   MR_ASSIGN_OR_RETURN(auto workers, WorkerGroup::FromEnvironment());
//   Tensor gradient = ...;                                                   // of this worker
//   MR_RETURN_IF_ERROR(workers->AllReduce(&gradient, collective::Reduction::kMean));   // now of all of them
//   ...
//   return workers->Leave();
//
// Start it with `millrace launch --ps 0 --workers 4 -- ./program`.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/cluster/server.h"
#include "millrace/cluster/task_config.h"
#include "millrace/collective/reduction_kind.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace collective {
class CollectiveGroup;
}

struct WorkerGroupOptions {
  // The same on all workers. A group that takes the place of a failed one needs another key.
  std::string key = "workers";
  // How long the others may take to start.
  absl::Duration join_timeout = absl::Minutes(1);
  // DEADLINE_EXCEEDED, naming who is missing, on all workers if an operation takes longer.
  absl::Duration timeout = absl::InfiniteDuration();
  // Of this task's server.
  ServerOptions server = {};
};

// One worker's part of the group. Every worker calls the same operations in the same order, with tensors of the same
// type and shape; each call returns when the result is there. If a worker dies, is silent for 5 s or does something
// else, all workers get an error that names it, and the group is of no more use: every later operation gets the same
// error.
//
// Results have the same bytes on all workers, and depend on the number of workers but not on timing.
//
// Thread-safe, but operations of several threads have no common order: use one thread for each group.
class WorkerGroup {
 public:
  // All tasks that train, in the order of TaskConfig::worker_index: the chief is rank 0. Starts this task's server at
  // its address, where the others and `millrace status` find it. INVALID_ARGUMENT if the task does not train (a ps, an
  // evaluator); without a cluster it is a group of one, which has no server.
  static StatusOr<std::unique_ptr<WorkerGroup>> Start(const TaskConfig& config, WorkerGroupOptions options = {});
  // As TF_CONFIG says; without it, a group of one.
  static StatusOr<std::unique_ptr<WorkerGroup>> FromEnvironment(WorkerGroupOptions options = {});
  // Ends the group; if Leave was not called, the others get UNAVAILABLE. After an error it waits, for 5 s at most,
  // until the others have been told of it.
  ~WorkerGroup();

  int rank() const;
  int size() const;
  // The same among the workers whose addresses have this one's host.
  int local_rank() const;
  int local_size() const;
  // Null in a group of one that has no cluster.
  Server* server() const;
  // For other collective operations; null in a group of one that has no cluster.
  collective::CollectiveGroup* group() const;

  // In place: the tensors of all workers are combined. A tensor whose memory is shared is copied first.
  Status AllReduce(Tensor* tensor, collective::Reduction reduction = collective::Reduction::kMean);
  // The tensors of all workers, one after another by rank, joined along the first dimension, in which they may differ.
  StatusOr<Tensor> AllGather(const Tensor& tensor);
  // Gives all workers the tensor of `root`; those of the others must have its type and shape already.
  Status Broadcast(Tensor* tensor, int root = 0);
  // Returns when all workers have called it.
  Status Barrier();
  // After the last operation, on all workers: waits for all of them, so that none finds another gone.
  Status Leave();

 private:
  struct State;
  explicit WorkerGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
