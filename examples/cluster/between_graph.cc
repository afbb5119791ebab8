// Between-graph replication, asynchronous: each worker builds the graph for itself, with the variables on the parameter
// servers, and trains on its share of the images at its own pace.
//
//   HOSTS="--ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224"
//   between_graph $HOSTS --job_name=ps --task_index=0 &
//   between_graph $HOSTS --job_name=worker --task_index=0 &
//   between_graph $HOSTS --job_name=worker --task_index=1
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "examples/cluster/task.h"

using namespace millrace;

namespace {

struct Replica {
  Output images, labels, loss, accuracy, num_correct, global_step, uninitialized;
  Operation train, init;
};

// Every worker builds the same graph, so that all use the same variables.
Replica BuildReplica(const Scope& scope, const TaskFlags& flags) {
  Replica r;
  r.images = ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {-1, 784}});
  r.labels = ops::Placeholder(scope.WithOpName("labels"), DType::kInt64, {.shape = {-1}});
  Output hidden = layers::Dense(scope, r.images, 100, {.activation = ops::Relu});
  Output logits = layers::Dense(scope, hidden, 10);
  r.loss = losses::SparseSoftmaxCrossEntropy(scope, r.labels, logits);
  r.accuracy = metrics::Accuracy(scope, r.labels, logits);
  r.num_correct = metrics::NumCorrect(scope, r.labels, logits);
  Var global_step = GlobalStep(scope);
  r.train = optimizers::GradientDescent({.learning_rate = flags.learning_rate})
                .Minimize(scope, r.loss, {.global_step = global_step});
  r.global_step = global_step.Read(scope.WithControlDependencies({r.train}));
  r.init = GlobalVariablesInitializer(scope);
  r.uninitialized = UninitializedVariables(scope);
  return r;
}

// The first worker initialises the variables; the others wait for it.
Status Initialize(ClientSession& session, const Replica& replica, bool is_chief) {
  if (is_chief) return session.Run(replica.init);
  for (bool told = false;; told = true) {
    MR_ASSIGN_OR_RETURN(const Tensors result, session.Run({replica.uninitialized}));
    if (result[0].num_elements() == 0) return absl::OkStatus();
    if (!told) {
      std::printf("Waiting for worker 0 to initialize %s\n",
                  absl::StrJoin(result[0].flat<std::string>(), ", ").c_str());
      std::fflush(stdout);
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

Status Run(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, StartTask(flags));
  if (flags.job_name == "ps") {
    server->Join();
    return absl::OkStatus();
  }
  const std::string worker = absl::StrCat("/job:worker/task:", flags.task_index);
  Scope scope =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = flags.num_ps(), .worker_device = worker}));
  scope.SetRandomSeed(1);
  const Replica replica = BuildReplica(scope, flags);
  // With the device filters, a worker does not depend on the other workers.
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope, {.target = server->target(),
                                                                           .device_filters = {"/job:ps", worker}}));
  MR_RETURN_IF_ERROR(Initialize(session, replica, flags.task_index == 0));

  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  MR_ASSIGN_OR_RETURN(Dataset images, Dataset::FromTensors({data.train_images, data.train_labels}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, images.Shard(flags.num_workers(), flags.task_index)
                                                                    .Shuffle({.seed = 1})
                                                                    .Repeat()
                                                                    .Batch(flags.batch_size)
                                                                    .MakeIterator());
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({replica.images, replica.labels},
                                                  {replica.loss, replica.accuracy, replica.global_step}));
  std::vector<Tensor> batch;
  for (int64_t local = 1, global = 0; global < flags.steps; ++local) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors told, step(batch));
    global = told[2].scalar<int64_t>();
    if (local % 50 == 0 || global >= flags.steps) PrintStep(global, told[0], told[1]);
  }
  return PrintTestAccuracy(session, replica.images, replica.labels, replica.num_correct, data);
}

}  // namespace

int main(int argc, char** argv) {
  return RunTask(
      argc, argv, "between_graph",
      "Trains on MNIST asynchronously: each worker with a graph of its own, the variables on the parameter servers.",
      Run);
}
