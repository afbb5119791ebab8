// Distributed training on MNIST, with the flags of TensorFlow's program of the same name. Every task runs this program.
//
// By hand, in three terminals:
//   mnist_replica --job_name=ps --task_index=0
//   mnist_replica --job_name=worker --task_index=0 --sync_replicas
//   mnist_replica --job_name=worker --task_index=1 --sync_replicas
// or by one command:
//   millrace launch --ps 1 --workers 2 -- mnist_replica --sync_replicas --log_dir=/tmp/mnist_logs
//
// The workers end after --train_steps. A ps serves until SIGTERM or Ctrl-C; the launcher stops it when the workers are
// done.
#include <csignal>
#include <cstdio>
#include <iostream>

#include "examples/mnist_replica/flags.h"
#include "examples/parse_flags.h"
#include "millrace/data/mnist.h"

using namespace millrace;

namespace {

struct Replica {
  Output images, labels, loss, num_correct, global_step;
  Operation train;
  Hooks hooks;
};

// Every worker builds the same graph, so that all use the same variables.
Replica Build(const Scope& scope, const Flags& flags, const TaskConfig& config) {
  Replica r;
  r.images = ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {-1, 784}});
  r.labels = ops::Placeholder(scope.WithOpName("labels"), DType::kInt64, {.shape = {-1}});
  const Output hidden =
      layers::Dense(scope.WithOpName("hidden"), r.images, flags.hidden_units, {.activation = ops::Relu});
  const Output logits = layers::Dense(scope.WithOpName("softmax"), hidden, 10);
  r.loss = losses::SparseSoftmaxCrossEntropy(scope, r.labels, logits);
  r.num_correct = metrics::NumCorrect(scope, r.labels, logits);
  const Var global_step = GlobalStep(scope);
  r.global_step = global_step;
  auto adam = std::make_unique<optimizers::Adam>(optimizers::AdamOptions{.learning_rate = flags.learning_rate});
  const int workers = config.num_workers();
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
  if (!flags.log_dir.empty()) ScalarSummary(scope, "loss", r.loss);
  return r;
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
  replica.hooks.push_back(std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = flags.train_steps}));

  // --profile_steps of `millrace launch` is handled by MonitoredTrainingSession.
  if (!flags.profile_steps.empty()) {
    MR_ASSIGN_OR_RETURN(
        std::shared_ptr<SessionRunHook> profiler,
        ProfilerHook::Make(
            {.output_dir = flags.log_dir, .steps = flags.profile_steps, .task = config.task.name(), .target = target}));
    replica.hooks.push_back(std::move(profiler));
  }

  MR_ASSIGN_OR_RETURN(Dataset all, Dataset::FromTensors({data.train_images, data.train_labels}));
  // All workers shuffle in the same way and take every n-th image, so together they see each image once per epoch.
  const Dataset mine = WorkerBatches(
      all,
      {.num_workers = config.num_workers(), .worker_index = config.worker_index(), .batch_size = flags.batch_size});
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, mine.Prefetch(2).MakeIterator());
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
  MR_ASSIGN_OR_RETURN(MonitoredStep step, session->MakeStep({replica.images, replica.labels},
                                                            {replica.loss, replica.global_step}, {replica.train}));
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
  MR_RETURN_IF_ERROR(PrintTestAccuracy(*session->raw_session(), replica, data));
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
  // Before any thread starts, so that all threads inherit the mask and a ps can wait for these signals.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  if (config.is_ps()) pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(config.cluster, config.task.job, config.task.index));
  std::printf("%s serves at %s\n", server->task().name().c_str(), server->target().c_str());
  std::fflush(stdout);
  if (!config.is_ps()) return Train(flags, config, server->target());
  int signal_number = 0;
  sigwait(&ending, &signal_number);
  server->Stop();
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
