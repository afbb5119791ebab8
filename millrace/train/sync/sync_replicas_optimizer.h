// Synchronous training: each update applies the mean of the gradients of several workers.
//
//   SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(...),
//                              {.replicas_to_aggregate = 2, .total_num_replicas = 2});
//   Operation train = sync.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
//   auto hook = sync.MakeSessionRunHook(is_chief);             // pass it to every worker's MonitoredTrainingSession
//
// The algorithm is TensorFlow's. Each variable has an accumulator on its task, shared by all workers. A worker's
// training step puts its gradients into the accumulators and then waits for a token, which it gets when the next global
// step has begun. In the background the chief runs the update: it takes the mean of `replicas_to_aggregate` gradients
// of each variable, lets the wrapped optimizer apply them, increments the global step and hands out tokens. A gradient
// carries its worker's local step, which is the global step at the time the worker got its token. The accumulators drop
// gradients of earlier steps and count them.
//
// If replicas_to_aggregate is less than the number of workers, the slowest workers' gradients are dropped (backup
// workers). If it is greater, some workers contribute several gradients to a step.
//
// Tokens. A worker announces each gradient in a queue before it applies it, and the update hands out as many tokens as
// there are announcements. (TensorFlow always hands out one token per worker; tokens that a slow worker has not taken
// then let fast workers compute gradients that are dropped.) Every worker that contributed to an update gets a token,
// so after each update at least replicas_to_aggregate workers can go on.
//
// After a failure:
// - A worker that died before it contributed its gradient is missing from the update. With backup workers this has no
//   effect. Otherwise the chief's update waits in a named wait ("1 of 2 gradients for accumulator
//   'sync_replicas/w/grad_accum' at step 812"), and the other workers wait for tokens, until the worker is back.
// - A worker that is back starts by computing a gradient at the current global step, without a token, which completes
//   the update.
// - A worker that died after it contributed leaves its token to another worker, which then contributes two gradients to
//   one step. An update hands out at most one token per replica, so the number of tokens is right again after it.
// - A chief that died during an update may have taken gradients without applying them. Announcements are removed last,
//   and a new chief first hands out tokens for announcements whose gradients are gone, so all workers go on at the
//   current global step.
// - A ps that died loses the accumulators of its variables. The steps that had given it gradients fail, the sessions
//   end, and the training begins anew with the values of a checkpoint: the other tasks forget the gradients that they
//   have, and workers repeat their steps.
//
// Fixed order (`shards`): the weights have the same bytes on any number of workers up to the number of shards.
//
//   SyncReplicasOptimizer sync(..., {.replicas_to_aggregate = 3, .shards = 8, .worker_index = 1});
//   std::vector<Output> losses = sync.BuildShards(scope, [&](const Scope& shard, int number) {
//     Output x = ops::Placeholder(shard, ...);                 // the part of the global batch that is shard `number`
//     return losses::...(shard, ..., layers::Dense(shard, x, 10));
//   });
//   Operation train = sync.Minimize(scope, losses, {.global_step = GlobalStep(scope)});
//
// The global batch has `shards` parts, which the workers share out. Each is computed by itself; accumulators count
// shards, each once for each step, and add them in the order of the shard tree (base/shard_tree.h). There are no tokens
// and no backup workers: all workers run each step, and wait until its update has been made.
// - A worker that died is missing until it is back. Which of its shards it had contributed does not matter: the first
//   gradient of a shard counts. It begins at local_step(), and its program with the batch of that step.
// - A new chief continues with the values on the parameter servers. If its predecessor died before an update was
//   applied, it takes the same sums again. If it died while the update was being applied, some variables have it and
//   others do not, and it is applied once more: for the same bytes, restore a checkpoint.
// - A ps that died, or a chief that restores an earlier checkpoint, takes the training back. A worker that was ahead
//   ends with FAILED_PRECONDITION, because its batches are those of later steps; start it again.
// - A worker whose training ends early, as its data do, ends that of the others: their step fails with OUT_OF_RANGE.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/api/optimizer.h"
#include "millrace/base/shard_tree.h"
#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/queue_runner.h"

namespace millrace {

class ShardModel;
struct SyncReplicasNodes;

struct SyncReplicasOptions {
  // The number of gradients that an update averages.
  int replicas_to_aggregate = 1;
  // The number of workers; 0 stands for replicas_to_aggregate. Must be the same in all workers.
  int total_num_replicas = 0;
  // Fixed order: the number of logical shards of a global batch, at least as many as workers; 0 switches it off. Must
  // be the same in all workers.
  int shards = 0;
  // With shards: the number of this worker, from 0.
  int worker_index = 0;
  // The name of the nodes and of the state that the workers share on the parameter servers. Two optimizers in one
  // cluster need different names.
  std::string name = "sync_replicas";
};

// One object makes one training op; all workers must build it in the same way. Errors are reported in the scope's
// status.
class SyncReplicasOptimizer {
 public:
  SyncReplicasOptimizer(std::unique_ptr<Optimizer> optimizer, SyncReplicasOptions options);
  ~SyncReplicasOptimizer();

  std::vector<GradAndVar> ComputeGradients(const Scope& scope, const Output& loss,
                                           const ComputeGradientsOptions& options = {});
  // Returns the op that a worker runs: it contributes one gradient and waits for the next step. The scope's device, or
  // its device function, determines the worker's task, whose name identifies its local step. INVALID_ARGUMENT if there
  // is no global step.
  Operation ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                           const ApplyGradientsOptions& options = {});
  Operation Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options = {});

  // Fixed order. This worker's shards, first to last - 1; none if the options are wrong.
  ShardRange local_shards() const;
  // Builds the model for each of them, and returns the losses. They share their variables by name (Scope::WithReuse).
  // Initial values and random layers depend on (seed, name) and (seed, name, step, shard) alone; variables that the
  // model itself assigns need an aggregation (VarOptions). Only the summaries of the first shard are kept.
  using ShardFn = std::function<Output(const Scope& shard, int number)>;
  std::vector<Output> BuildShards(const Scope& scope, const ShardFn& model);
  // Like Minimize above, for the mean of the losses of all shards of all workers. Rows of sparse gradients are added up
  // and divided by the number of shards, which makes them the gradient of that mean.
  Operation Minimize(const Scope& scope, const std::vector<Output>& losses, const MinimizeOptions& options);

  // The hook that runs the ops below at the right times. In a new session a worker waits for the chief, logging the
  // wait; the chief fails with FAILED_PRECONDITION if variables have no value. Adds nodes, so call it before there is a
  // session. Only the chief uses num_tokens, see InitTokensOp.
  std::unique_ptr<SessionRunHook> MakeSessionRunHook(bool is_chief, int num_tokens = -1) const;

  // The methods below may be called after ApplyGradients.

  // To be run in each session, once ready_for_local_init returns no names: chief_init_op by the chief,
  // local_step_init_op by every other worker. The others become ready when the chief has run its op since the parameter
  // servers started.
  Operation chief_init_op() const;
  Operation local_step_init_op() const;
  // The names of variables without a value, a string vector.
  Output ready_for_local_init(bool is_chief) const;
  // The op that the chief runs once at the beginning of a training: it hands out `num_tokens` tokens in addition to the
  // first gradient that each worker computes without one; -1 stands for replicas_to_aggregate. With 0, every worker
  // contributes one gradient to each step, including the first, and waits; with more, workers that are ahead may
  // contribute a second gradient to the first steps. INVALID_ARGUMENT if num_tokens is less than replicas_to_aggregate
  // minus the number of workers. Adds nodes.
  StatusOr<Operation> InitTokensOp(int num_tokens = -1) const;
  // The update, which the chief runs repeatedly.
  QueueRunner ChiefQueueRunner() const;
  Operation update_op() const;

  // The number of gradients that came too late and were dropped since the parameter servers started: an int64 vector
  // with one element per variable that has an accumulator, in the order of the gradients; and its maximum, which is the
  // number of wasted worker steps.
  Output num_dropped_per_variable() const;
  Output num_dropped() const;
  // The global step that this worker's next gradient belongs to.
  Output local_step() const;

 private:
  using Nodes = SyncReplicasNodes;
  class Builder;
  // Whether a training op can be built; otherwise the scope has an error.
  bool MayBuild(const Scope& scope, const std::optional<Var>& global_step) const;

  const std::unique_ptr<Optimizer> optimizer_;
  const SyncReplicasOptions options_;
  std::shared_ptr<Nodes> nodes_;
  std::shared_ptr<ShardModel> shards_;  // between BuildShards and Minimize
};

}  // namespace millrace
