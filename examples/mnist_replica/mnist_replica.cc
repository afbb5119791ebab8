// Distributed training on MNIST, with the flags of TensorFlow's program of the same name. Every task runs this program.
//
// By hand, in three terminals:
//   mnist_replica --job_name=ps --task_index=0
//   mnist_replica --job_name=worker --task_index=0 --sync_replicas
//   mnist_replica --job_name=worker --task_index=1 --sync_replicas
// or by one command:
//   millrace launch --ps 1 --workers 2 -- mnist_replica --sync_replicas --log_dir=/tmp/mnist_logs
// With --sync_replicas --shards=8 the weights are the same, byte for byte, on 1 to 8 workers.
//
// The workers end after --train_steps. A ps serves until SIGTERM; the launcher stops it when the workers are done.
#include <cstdio>
#include <iostream>

#include "examples/mnist_replica/flags.h"
#include "examples/parse_flags.h"
#include "millrace/data/mnist.h"

using namespace millrace;

namespace {

struct Replica {
  Output images, labels, loss, num_correct, global_step;
  // The inputs of a step: images and labels, of each of this worker's shards if there are any.
  std::vector<Output> feeds;
  // The step of this worker's next batch; with shards only.
  Output next_step;
  ShardRange shards;
  Operation train;
  Hooks hooks;
};

// Adds the network and returns its loss. Evaluation uses the first one that a worker builds.
Output AddModel(const Scope& scope, const Flags& flags, Replica* r) {
  const Output images = ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {-1, 784}});
  const Output labels = ops::Placeholder(scope.WithOpName("labels"), DType::kInt64, {.shape = {-1}});
  const Output hidden =
      layers::Dense(scope.WithOpName("hidden"), images, flags.hidden_units, {.activation = ops::Relu});
  const Output logits = layers::Dense(scope.WithOpName("softmax"), hidden, 10);
  const Output loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits);
  r->feeds.insert(r->feeds.end(), {images, labels});
  if (r->images.empty()) {
    r->images = images;
    r->labels = labels;
    r->loss = loss;
    r->num_correct = metrics::NumCorrect(scope, labels, logits);
  }
  return loss;
}

// Every worker builds the same graph, so that all use the same variables.
Replica Build(const Scope& scope, const Flags& flags, const TaskConfig& config) {
  Replica r;
  const int workers = config.num_workers();
  auto adam = std::make_unique<optimizers::Adam>(optimizers::AdamOptions{.learning_rate = flags.learning_rate});
  if (flags.shards > 0) {
    const Var global_step = GlobalStep(scope);
    r.global_step = global_step;
    SyncReplicasOptimizer sync(
        std::move(adam),
        {.replicas_to_aggregate = workers, .shards = flags.shards, .worker_index = config.worker_index()});
    const std::vector<Output> losses =
        sync.BuildShards(scope, [&](const Scope& shard, int) { return AddModel(shard, flags, &r); });
    r.train = sync.Minimize(scope, losses, {.global_step = global_step});
    r.hooks.push_back(sync.MakeSessionRunHook(config.is_chief()));
    r.next_step = sync.local_step();
    r.shards = sync.local_shards();
    return r;
  }
  AddModel(scope, flags, &r);
  const Var global_step = GlobalStep(scope);
  r.global_step = global_step;
  if (flags.sync_replicas) {
    const int aggregate = flags.replicas_to_aggregate > 0 ? flags.replicas_to_aggregate : workers;
    SyncReplicasOptimizer sync(std::move(adam), {.replicas_to_aggregate = aggregate, .total_num_replicas = workers});
    r.train = sync.Minimize(scope, r.loss, {.global_step = global_step});
    r.hooks.push_back(sync.MakeSessionRunHook(config.is_chief(), std::max(0, aggregate - workers)));
  } else {
    r.train = adam->Minimize(scope, r.loss, {.global_step = global_step});
    if (flags.staleness >= 0) {
      BoundedStaleness bound(
          {.num_workers = workers, .worker_index = config.worker_index(), .staleness = flags.staleness});
      r.train = bound.Bound(scope, r.train);
      r.hooks.push_back(bound.MakeSessionRunHook());
    }
  }
  return r;
}

// This worker's batches. All workers shuffle in the same way and take every n-th image, so together they see each image
// once per epoch; with shards it is every shard that does.
StatusOr<Dataset> MakeBatches(const Flags& flags, const TaskConfig& config, const Mnist& data, ShardRange shards) {
  MR_ASSIGN_OR_RETURN(Dataset all, Dataset::FromTensors({data.train_images, data.train_labels}));
  const auto part = [&](int count, int index) {
    return WorkerBatches(all, {.num_workers = count, .worker_index = index, .batch_size = flags.batch_size});
  };
  if (flags.shards == 0) return part(config.num_workers(), config.worker_index());
  std::vector<Dataset> parts;
  for (int shard = shards.first; shard < shards.last; ++shard) parts.push_back(part(flags.shards, shard));
  return Dataset::Zip(std::move(parts));
}

// One number for all weights (FNV-1a).
Status PrintWeights(ClientSession& session, const Scope& scope) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Var& variable : GlobalVariables(scope)) {
    MR_ASSIGN_OR_RETURN(const Tensors value, session.Run({variable}));
    const auto* const bytes = static_cast<const uint8_t*>(value[0].raw_data());
    for (size_t i = 0; i < value[0].TotalBytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  std::printf("Weights have checksum %016llx\n", static_cast<unsigned long long>(hash));
  return absl::OkStatus();
}

Status PrintTestAccuracy(ClientSession& session, const Replica& replica, const Mnist& data) {
  const int64_t total = data.test_labels.num_elements();
  int64_t correct = 0;
  for (int64_t i = 0; i < total; i += 1000) {
    const int64_t end = std::min<int64_t>(i + 1000, total);
    MR_ASSIGN_OR_RETURN(const Tensors result, session.Run({{replica.images, data.test_images.Slice(i, end)},
                                                           {replica.labels, data.test_labels.Slice(i, end)}},
                                                          {replica.num_correct}));
    correct += result[0].scalar<int64_t>();
  }
  std::printf("Test accuracy %.2f %% on %lld images\n",
              100.0 * static_cast<double>(correct) / static_cast<double>(total), static_cast<long long>(total));
  std::fflush(stdout);
  return absl::OkStatus();
}

Status Train(const Flags& flags, const TaskConfig& config, const std::string& target) {
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  const std::string me = absl::StrCat("/job:", config.task.job, "/task:", config.task.index);
  Scope scope =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = config.num_ps(), .worker_device = me}));
  scope.SetRandomSeed(1);
  Replica replica = Build(scope, flags, config);
  MR_RETURN_IF_ERROR(scope.status());
  if (!flags.log_dir.empty()) ScalarSummary(scope, "loss", replica.loss);
  replica.hooks.push_back(std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = flags.train_steps}));

  // --profile_steps of `millrace launch` is handled by MonitoredTrainingSession.
  if (!flags.profile_steps.empty()) {
    MR_ASSIGN_OR_RETURN(
        std::shared_ptr<SessionRunHook> profiler,
        ProfilerHook::Make(
            {.output_dir = flags.log_dir, .steps = flags.profile_steps, .task = config.task.name(), .target = target}));
    replica.hooks.push_back(std::move(profiler));
  }

  MR_ASSIGN_OR_RETURN(
      std::unique_ptr<MonitoredSession> session,
      MonitoredTrainingSession(scope, {.master = target,
                                       .is_chief = config.is_chief(),
                                       .checkpoint_dir = flags.log_dir,
                                       .hooks = replica.hooks,
                                       .save_checkpoint_every = absl::Seconds(flags.save_checkpoint_secs),
                                       .log_step_count_every_steps = 0,
                                       .loss = replica.loss,
                                       // A restarted chief continues with the values on the parameter servers.
                                       .keep_values = true,
                                       .session = {.device_filters = {"/job:ps", me}}}));
  MR_ASSIGN_OR_RETURN(MonitoredStep step,
                      session->MakeStep(replica.feeds, {replica.loss, replica.global_step}, {replica.train}));
  MR_ASSIGN_OR_RETURN(Dataset mine, MakeBatches(flags, config, data, replica.shards));
  if (flags.shards > 0) {
    // Each step has its batch, also in a training that continues.
    MR_ASSIGN_OR_RETURN(const Tensors next, session->raw_session()->Run({replica.next_step}));
    mine = mine.Skip(next[0].scalar<int64_t>());
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, mine.Prefetch(2).MakeIterator());
  std::vector<Tensor> batch;
  for (int64_t local = 1; !session->ShouldStop(); ++local) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors told, step(batch));
    if (local % 50 == 0 || session->ShouldStop()) {
      std::printf("Worker %d: step %lld done (global step %lld), loss %.4f\n", config.worker_index(),
                  static_cast<long long>(local), static_cast<long long>(told[1].scalar<int64_t>()),
                  told[0].scalar<float>());
      std::fflush(stdout);
    }
  }
  // Preempted: the chief has saved, and there is no time for more.
  if (NoticeBoard::OfProcess()->given()) return session->Close();
  MR_RETURN_IF_ERROR(PrintTestAccuracy(*session->raw_session(), replica, data));
  if (flags.shards > 0) MR_RETURN_IF_ERROR(PrintWeights(*session->raw_session(), scope));
  MR_RETURN_IF_ERROR(session->Close());
  if (flags.profile_steps.empty() || !config.is_chief()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::string timeline, MergeTimelines(flags.log_dir));
  std::printf("Timeline of steps %s: %s (open it in chrome://tracing or ui.perfetto.dev)\n",
              flags.profile_steps.c_str(), timeline.c_str());
  return absl::OkStatus();
}

Status Run(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const TaskConfig config, flags.Task());
  if (flags.existing_servers) {
    MR_ASSIGN_OR_RETURN(const std::string address, config.cluster.Address(config.task));
    return Train(flags, config, "grpc://" + address);
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(config.cluster, config.task.job, config.task.index));
  std::printf("%s serves at %s\n", server->task().name().c_str(), server->target().c_str());
  std::fflush(stdout);
  if (!config.is_ps()) return Train(flags, config, server->target());
  server->ServeUntilNotice();
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a network on MNIST with parameter servers and workers, synchronously or not.", "mnist_replica");
  flags.AddTo(app);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "mnist_replica: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
