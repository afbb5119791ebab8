// Synchronous training: an update takes the mean of the gradients of several workers.
//
//   SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(...), {.replicas_to_aggregate = 2, .total_num_replicas = 2});
//   Operation train = sync.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
//   auto hook = sync.MakeSessionRunHook(is_chief);             // of every worker's MonitoredTrainingSession
//
// In TensorFlow's way. Each variable has an accumulator beside it, which all workers share. A worker's training step puts its gradients there and then takes a
// token, for which it waits until the next global step has begun. Beside its own steps the chief runs the update: take the mean of
// `replicas_to_aggregate` gradients of each variable, let the wrapped optimizer apply them, count the global step up, hand out tokens. A gradient
// carries the local step of its worker: the global step when its token came. The accumulators drop those of earlier steps, and count them.
//
// With fewer replicas_to_aggregate than workers, the slowest workers' gradients are dropped (backup workers). With more, a worker gives several
// gradients to a step.
//
// Tokens. A worker announces each gradient in a queue, before it gives it; the update answers what was announced with as many tokens (TensorFlow always
// hands out one for each worker, and those that a slow worker leaves make the fast ones compute gradients that are dropped). Nobody who gave a gradient
// to an update is left out, so that after each update at least replicas_to_aggregate workers have something to do.
//
// What a death leaves behind:
// - A worker that died before it gave its gradient is missing from the update. With backup workers nobody notices; otherwise the chief's update
//   waits in a named wait ("1 of 2 gradients for accumulator 'sync_replicas/w/grad_accum' at step 812") and the other workers for their tokens, until it is back.
// - One that is back begins by computing, at the global step of that moment, with no token: the quorum is whole again.
// - One that died after it gave its gradient leaves a token that another worker takes: that one gives two gradients to one step. The update hands out
//   at most one token for each replica, and so the number is right again after it.
// - A chief that died in the middle of an update may have taken gradients that were not applied. Announcements are removed last, and a new chief begins by
//   answering those whose gradients are no longer there: all workers go on, at the global step that there is.
// - A ps that died takes the accumulators of its variables along; sessions end with it, and those that follow begin as at the first time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/api/optimizer.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/session_run_hook.h"

namespace millrace {

struct SyncReplicasOptions {
  // How many gradients make an update.
  int replicas_to_aggregate = 1;
  // How many workers there are; 0: replicas_to_aggregate. All workers must say the same.
  int total_num_replicas = 0;
  // Of the nodes, and of what the workers share on the parameter servers: two of these in one cluster need two names.
  std::string name = "sync_replicas";
};

// Use one object for one training op, made in the same way by all workers. Mistakes are the scope's status.
class SyncReplicasOptimizer {
 public:
  SyncReplicasOptimizer(std::unique_ptr<Optimizer> optimizer, SyncReplicasOptions options);
  ~SyncReplicasOptimizer();

  std::vector<GradAndVar> ComputeGradients(const Scope& scope, const Output& loss, const ComputeGradientsOptions& options = {});
  // What a worker runs: one gradient, then the wait for the next step. The scope, or its device function, says on which task the worker is:
  // that is where the local step is. INVALID_ARGUMENT without a global step.
  Operation ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients, const ApplyGradientsOptions& options = {});
  Operation Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options = {});

  // Runs what is below at the right times. After a session was made the workers wait in it for the chief, and say so once a while; the chief fails
  // with FAILED_PRECONDITION while variables have no value. Adds nodes: make it before there is a session. num_tokens: see InitTokensOp; only the chief's counts.
  std::unique_ptr<SessionRunHook> MakeSessionRunHook(bool is_chief, int num_tokens = -1) const;

  // What follows is there after ApplyGradients.

  // Run by the chief, and by every other worker, for each session, once ready_for_local_init is an empty list. The chief's goes first: the others are
  // ready when it has been run since the parameter servers began.
  Operation chief_init_op() const;
  Operation local_step_init_op() const;
  // The names of variables without a value, as strings [n].
  Output ready_for_local_init(bool is_chief) const;
  // Then by the chief when it trains from the beginning: so many tokens more than there are workers at work; -1: replicas_to_aggregate. With 0 every worker gives one gradient
  // to each step, the first included, and waits; with more, workers that are ahead give some of the first steps a second one. INVALID_ARGUMENT when they are less
  // than the number by which replicas_to_aggregate exceeds the workers. Adds nodes.
  StatusOr<Operation> InitTokensOp(int num_tokens = -1) const;
  // The update, to be run again and again by the chief.
  QueueRunner ChiefQueueRunner() const;
  Operation update_op() const;

  // How many gradients came too late to count since the parameter servers began: for each variable that has an accumulator, in the order of the
  // gradients, as int64s [n]; and the largest of them, which is the number of steps of workers that were of no use.
  Output num_dropped_per_variable() const;
  Output num_dropped() const;
  // The global step that this worker's next gradient is for.
  Output local_step() const;

 private:
  struct Nodes;
  class Hook;
  const std::unique_ptr<Optimizer> optimizer_;
  const SyncReplicasOptions options_;
  std::shared_ptr<Nodes> nodes_;
};

}  // namespace millrace
