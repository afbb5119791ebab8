// Asynchronous training with bounded staleness: no worker gets more than a given number of steps ahead of the slowest.
//
//   Operation train = optimizer.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
//   BoundedStaleness bound({.num_workers = 4, .worker_index = 1, .staleness = 3});
//   train = bound.Bound(scope, train);
//   auto hook = bound.MakeSessionRunHook();                    // pass it to every worker's MonitoredTrainingSession
//
// A worker that has finished n steps begins the next one when every worker has finished at least n - staleness. With 0
// all workers proceed in lockstep; without a bound nobody waits. Each worker applies its gradients as soon as it has
// them, so 0 gives the pace of synchronous training but not its arithmetic (for that, see sync_replicas_optimizer.h). A
// gradient misses at most `staleness` steps of each other worker.
//
// The step counts are on the task of the global step, in a StepGate (ops/data_flow/step_gate.h). The parameter server's
// list of waits says which worker a wait is for ("worker 1 (9 of 12 steps)"). The hook sends keep-alives while the
// worker's process lives, however long its steps take; the others do not wait for a worker that has been silent for
// longer than the lease. A worker that comes back joins at the step of the slowest of the others.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/api/variable.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

struct BoundedStalenessOptions {
  int num_workers = 1;  // must be the same in all workers
  int worker_index = 0;
  std::optional<int64_t> staleness = 0;  // nullopt: no bound
  // If a worker's process has not sent a keep-alive for this long, the others go on without it. If infinite, they wait
  // until it is back.
  absl::Duration lease = absl::Seconds(30);
  // The name of the nodes and of the state that the workers share. Two bounds in one cluster need different names.
  std::string name = "bounded_staleness";
};

// Errors are reported in the scope's status.
class BoundedStaleness {
 public:
  explicit BoundedStaleness(BoundedStalenessOptions options);
  ~BoundedStaleness();

  // Returns the op to run instead of `train`: it completes when `train` has run and the worker may begin its next step.
  // Call it once.
  Operation Bound(const Scope& scope, const Operation& train);

  // The hook joins in each new session, sends keep-alives, and leaves at the end of the training.
  std::unique_ptr<SessionRunHook> MakeSessionRunHook() const;

  // The methods below may be called after Bound.

  // For programs that do not use the hook: run join_op before the first step, leave_op after the last one, and
  // keep_alive_op every third of the lease.
  Operation join_op() const;
  Operation leave_op() const;
  Operation keep_alive_op() const;
  // The number of steps that each worker has finished, an int64 vector; -1 for a worker that the others do not wait
  // for.
  Output steps() const;

 private:
  struct Nodes;
  class Hook;
  const BoundedStalenessOptions options_;
  std::shared_ptr<Nodes> nodes_;
};

}  // namespace millrace
