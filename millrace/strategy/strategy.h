// Training on one device, several devices or several machines with the same model function:
//
//   MR_ASSIGN_OR_RETURN(auto strategy, MultiWorkerMirroredStrategy());
//   Scope scope = strategy->NewScope();
//   ReplicaInputs batch = strategy->MakeInputs(scope, 128, {{DType::kFloat, {784}}, {DType::kInt32, {}}});
//   PerReplica loss = strategy->Run(scope, batch, [](const Scope& replica, const std::vector<Output>& in) {
//     return losses::SparseSoftmaxCrossEntropy(replica, in[1], layers::Dense(replica, in[0], 10));
//   });
//   optimizers::Adam adam;
//   Output mean_loss = strategy->Reduce(scope, ReplicaReduction::kMean, loss);
//   Operation train = strategy->Minimize(scope, adam, loss);
//   MR_ASSIGN_OR_RETURN(auto session, strategy->TrainingSession(scope, {.checkpoint_dir = "run"}));
//   MR_ASSIGN_OR_RETURN(MonitoredStep step, session->MakeStep(batch.feeds, {mean_loss}, {train}));
//   MR_ASSIGN_OR_RETURN(Dataset batches, strategy->DistributeDataset(examples, {.batch_size = 128}));
//   MR_ASSIGN_OR_RETURN(auto it, strategy->MakeIterator(batches));
//   ...
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/api/optimizer.h"
#include "millrace/api/output.h"
#include "millrace/api/variable.h"
#include "millrace/cluster/task_config.h"
#include "millrace/data/dataset.h"
#include "millrace/strategy/worker_group.h"
#include "millrace/train/monitored_training_session.h"

namespace millrace {

// A tensor for each replica of this worker, in the order of their numbers, and the scope that it was built in.
struct PerReplica {
  std::vector<Output> values = {};
  std::vector<Scope> scopes = {};
  // If batches may be partial: how much each replica counts in a mean, as a scalar float: the number of its examples
  // divided by the mean number of all replicas, 0 for one that has none. Empty: all count the same.
  std::vector<Output> weights = {};
};

// One component of an example: its type and its shape without the batch's dimension.
struct InputSpec {
  DType dtype = DType::kFloat;
  PartialShape shape = {};
};
// The placeholders of a step.
struct ReplicaInputs {
  // The components of each replica of this worker.
  std::vector<std::vector<Output>> replicas = {};
  // All of them, in the order of the tensors of an element of DistributeDataset: those of one replica after another.
  std::vector<Output> feeds = {};
  std::vector<Output> weights = {};  // see PerReplica
};

enum class ReplicaReduction { kSum, kMean };

struct DistributeOptions {
  // The global batch: the examples of all replicas of all workers in one step.
  int64_t batch_size = 1;
  // Determines the order of the examples, which differs in each epoch. The same on all workers.
  uint64_t seed = 1;
  // See ShuffleOptions::buffer_size; 0 means all examples. Negative disables shuffling.
  int64_t shuffle_buffer = 0;
  // The number of epochs; negative means indefinitely.
  int64_t repeat = -1;
  // Whether examples after the last whole global batch are left out. Otherwise the last batch is partial: see
  // MakeInputs.
  bool drop_remainder = true;
  // The number of global batches to leave out at the beginning, because a training that is resumed has had them.
  int64_t first_batch = 0;
};

// The part of a job that one process runs. Replicas are numbered over all workers; each has an equal part of the global
// batch and runs the model function on it, all with the same variables.
//
// Every worker builds the same graph. Workers of a synchronous strategy run the same steps and call Run, Reduce,
// Minimize and MakeIterator in the same order; one that dies, falls silent or does something else becomes an error that
// names it, on all workers.
//
// Used by one thread at a time. Must outlive its iterators.
class Strategy {
 public:
  // The result of a model function is one tensor, such as a loss, or several.
  using ReplicaFn = std::function<Output(const Scope& replica, const std::vector<Output>& inputs)>;
  using ReplicaListFn = std::function<std::vector<Output>(const Scope& replica, const std::vector<Output>& inputs)>;

  virtual ~Strategy() = default;

  virtual const std::string& name() const = 0;  // "MultiWorkerMirrored"
  // Whether a step is one of all workers, or each worker's own.
  virtual bool is_synchronous() const { return true; }
  virtual int num_workers() const = 0;
  virtual int worker_index() const = 0;
  // Restores, saves and writes summaries.
  bool is_chief() const { return worker_index() == 0; }
  virtual int num_replicas() const = 0;
  // This worker's are first_replica(), ..., first_replica() + local_replicas() - 1.
  virtual int first_replica() const = 0;
  virtual int local_replicas() const = 0;

  // The root of a new graph whose variables are the strategy's. With a random seed (Scope::SetRandomSeed) the initial
  // value of a variable depends on the seed and the variable's name alone.
  virtual Scope NewScope() = 0;

  // Placeholders for the parts of a global batch. The scope fails with INVALID_ARGUMENT if the replicas cannot have
  // equal parts.
  //
  // Without drop_remainder the batch size may be any, and batches may be partial: the parts then have an unknown number
  // of examples, and an element ends, for each replica, with that number. Means (Reduce, Minimize, variables that
  // replicas assign) are those of the examples, on any number of workers. A replica without an example computes with a
  // stand-in, which does not count: neither in means, nor in sums, nor in local variables.
  ReplicaInputs MakeInputs(const Scope& scope, int64_t batch_size, const std::vector<InputSpec>& specs,
                           bool drop_remainder = true);

  // Builds the model for each replica of this worker, on the replica's device. All share their variables by name
  // (Scope::WithReuse). Variables that the model itself assigns need an aggregation (VarOptions); random layers draw
  // numbers that depend on (seed, name, step, replica) alone. Only the summaries of this worker's first replica are
  // kept.
  PerReplica Run(const Scope& scope, const ReplicaInputs& inputs, const ReplicaFn& fn);
  std::vector<PerReplica> Run(const Scope& scope, const ReplicaInputs& inputs, const ReplicaListFn& fn);

  // The sum or mean over the replicas of all workers; the same bytes on all of them. What is reduced before Minimize is
  // called, and needs no other inputs than the losses, is part of each training step, whoever fetches it. Everything
  // else is computed when it is fetched, on all workers in the same step: one that does not is named.
  virtual Output Reduce(const Scope& scope, ReplicaReduction reduction, const PerReplica& values) = 0;

  // The value of a variable. Of one that is synchronised on read (VarOptions) it is the aggregate of the replicas'
  // copies, any of which stands for it here: an exchange as in Reduce, which runs after the scope's control
  // dependencies.
  virtual Output ReadVariable(const Scope& scope, const Var& variable);

  // The op that performs one training step: the gradients of the mean of all replicas' losses, one update of the
  // variables, update ops (moving averages), and one more global step, GlobalStep(scope) if no other is given. Sparse
  // gradients are made dense.
  virtual Operation Minimize(const Scope& scope, Optimizer& optimizer, const PerReplica& losses,
                             const MinimizeOptions& options = {}) = 0;

  // The elements of this worker's replicas, in the order of ReplicaInputs::feeds. In each epoch every example goes to
  // one replica; replica r has the examples r, r + num_replicas(), ... of a global batch.
  virtual StatusOr<Dataset> DistributeDataset(const Dataset& examples, const DistributeOptions& options) = 0;
  // The same for data in files, each of which is read by one replica: replica r has the files r, r + num_replicas(),
  // ... of `files`, and `open` returns the examples of a file. `shuffle_buffer` examples of each replica are shuffled.
  virtual StatusOr<Dataset> DistributeFiles(const Dataset& files, const FlatMapFn& open,
                                            const DistributeOptions& options) = 0;
  // Iterates over what DistributeDataset or DistributeFiles returned, or anything else. It ends on all workers as soon
  // as it ends on one of them: they agree in each call of Next, unless the dataset is endless. Without drop_remainder
  // it ends when it has ended on all of them; those that come to their end first get examples that do not count.
  virtual StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(const Dataset& batches,
                                                                  bool drop_remainder = true) = 0;

  // The text that the chief gave, on all workers of a synchronous strategy, which call it together: what they must
  // agree on, such as a checkpoint. Otherwise `own`.
  virtual StatusOr<std::string> TextOfChief(const std::string& own) { return own; }

  // Options of sessions on this worker: its devices, and the group that it belongs to. Variables of such a session are
  // its own, unless the options have resources that it shares with others.
  virtual StatusOr<SessionOptions> MakeSessionOptions(SessionOptions options = {}) = 0;
  // A MonitoredTrainingSession in this process. The chief restores and saves; then all workers get its variables.
  // `master`, `is_chief` and `recover` are set by the strategy: a lost worker ends the training of all with an error.
  virtual StatusOr<std::unique_ptr<MonitoredSession>> TrainingSession(const Scope& scope,
                                                                      MonitoredTrainingSessionOptions options = {}) = 0;

 protected:
  // The scope of one replica; `index` counts this worker's. `weight` may be empty.
  virtual Scope ReplicaScope(const Scope& scope, int index, const Output& weight) = 0;
  // Called when the model has been built for all replicas.
  virtual void EndReplicas(const Scope& scope) = 0;
};

struct StrategyOptions {
  // "/device:CPU:0", ...; the replicas of a worker are spread over them. Empty: CPU:0.
  std::vector<std::string> devices = {};
  // Fixed order: the global batch has this many logical shards, which are the replicas. Each is computed by itself and
  // their results are combined in a fixed tree, so the weights are the same, byte for byte, on any number of workers
  // and devices up to the number of shards. 0: each device is one replica, and the result depends on their number.
  int shards = 8;
  // Gradients are exchanged in groups of about this size, in the order in which the backward pass computes them.
  int64_t bucket_bytes = int64_t{4} << 20;
  // If positive, the number of these groups, instead of bucket_bytes.
  int num_packs = 0;
  // Without fixed order, how gradients are summed: auto, ring, halving-doubling, doubling or tree.
  std::string all_reduce_alg = "auto";
  // CentralStorage: where variables are, gradients are added up and updates made.
  std::string variable_device = "/device:CPU:0";
  // Of the workers' group.
  WorkerGroupOptions group = {};
};

// Everything on one device of this process.
StatusOr<std::unique_ptr<Strategy>> OneDeviceStrategy(StrategyOptions options = {});
// The devices of one process: on the CPU, several virtual devices ("/device:CPU:0", "/device:CPU:1"). They share the
// variables, which are on the first one.
StatusOr<std::unique_ptr<Strategy>> MirroredStrategy(StrategyOptions options = {});
// The workers of a job, as TF_CONFIG says (one without it), each with the same number of devices. Every worker has the
// variables. Starts this task's server; the others must start within group.join_timeout.
StatusOr<std::unique_ptr<Strategy>> MultiWorkerMirroredStrategy(StrategyOptions options = {});
StatusOr<std::unique_ptr<Strategy>> MultiWorkerMirroredStrategy(const TaskConfig& config, StrategyOptions options = {});
// In-graph replication: one client, a tower on each device, and variables, sums and updates on `variable_device`. The
// devices may be those of other tasks ("/job:worker/task:1/device:CPU:0"): give TrainingSession the `master`.
StatusOr<std::unique_ptr<Strategy>> CentralStorageStrategy(StrategyOptions options = {});

// Asynchronous: variables are on the tasks of job ps, spread by bytes, and each worker of the job updates them at its
// own pace, as TF_CONFIG says (one worker in this process without it). A step has this worker's part of a global batch
// only; Reduce returns this worker's value, and the global step counts the steps of all. A lost worker does not stop
// the others; TrainingSession recovers from lost connections and restarted tasks.
//
// Starts this task's server. On a task of job ps it serves there until the process ends, and does not return.
StatusOr<std::unique_ptr<Strategy>> ParameterServerStrategy(const ServerOptions& options = {});
StatusOr<std::unique_ptr<Strategy>> ParameterServerStrategy(const TaskConfig& config,
                                                            const ServerOptions& options = {});

}  // namespace millrace
