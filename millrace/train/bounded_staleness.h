// Asynchronous training within a bound: no worker gets more than a number of steps ahead of the slowest.
//
//   Operation train = optimizer.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
//   BoundedStaleness bound({.num_workers = 4, .worker_index = 1, .staleness = 3});
//   train = bound.Bound(scope, train);
//   auto hook = bound.MakeSessionRunHook();                    // of every worker's MonitoredTrainingSession
//
// A worker begins a step when every worker has finished at least as many as it has itself, less the staleness: with 0 all go in step, without a bound nobody
// waits. Gradients are applied by each worker as they come, in any order, so that 0 is the pace of synchronous training and not its arithmetic (for that,
// sync_replicas_optimizer.h). A gradient is at most `staleness` steps of each other worker old.
//
// The counts are beside the global step, in a StepGate (ops/data_flow/step_gate.h). A worker that waits says for whom ("worker 1 (9 of 12 steps)") in the list of waits of
// the parameter server. The hook keeps a worker's place alive while its process lives, however long its steps take; one that is silent for longer than the lease is not
// waited for. A worker that is back joins where the slowest of the others is.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/api/variable.h"
#include "millrace/train/session_run_hook.h"

namespace millrace {

struct BoundedStalenessOptions {
  int num_workers = 1;   // the same for all of them
  int worker_index = 0;  // of this one
  std::optional<int64_t> staleness = 0;  // nothing: no bound
  // After so long without a sign of a worker's process the others go on without it; infinite: they wait until it is back.
  absl::Duration lease = absl::Seconds(30);
  // Of the nodes, and of what the workers share: two of these in one cluster need two names.
  std::string name = "bounded_staleness";
};

// Mistakes are the scope's status.
class BoundedStaleness {
 public:
  explicit BoundedStaleness(BoundedStalenessOptions options);
  ~BoundedStaleness();

  // The op to run in place of `train`: it has run when that has and the worker may begin its next step. Once.
  Operation Bound(const Scope& scope, const Operation& train);

  // Joins with each new session, keeps the worker's place alive, and leaves at the end.
  std::unique_ptr<SessionRunHook> MakeSessionRunHook() const;

  // What follows is there after Bound.

  // For programs without the hook: to run before the first step, after the last one, and every third of the lease.
  Operation join_op() const;
  Operation leave_op() const;
  Operation keep_alive_op() const;
  // The steps that each worker has finished, as int64s [num_workers]; -1 for one that is not waited for.
  Output steps() const;

 private:
  struct Nodes;
  class Hook;
  const BoundedStalenessOptions options_;
  std::shared_ptr<Nodes> nodes_;
};

}  // namespace millrace
