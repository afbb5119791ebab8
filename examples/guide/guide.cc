// The program of docs/guide.md: the same in one process, on a ps and workers by hand, and under `millrace launch`.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "millrace/data/mnist.h"
#include "millrace/millrace.h"

using namespace millrace;

Status Train(const std::string& log_dir, int64_t steps) {
  // TF_CONFIG tells which task this process is. If it is not set, the process runs without a cluster.
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> told, TaskConfig::FromEnvironment());
  const TaskConfig config = told.value_or(TaskConfig{});
  std::unique_ptr<Server> server;
  Scope scope = Scope::NewRoot();
  if (!config.cluster.jobs().empty()) {
    MR_ASSIGN_OR_RETURN(server, Server::Start(config.cluster, config.task.job, config.task.index));
    if (config.is_ps()) {
      server->Join();
      return absl::OkStatus();
    }
    scope = scope.WithDeviceFunction(
        ReplicaDeviceSetter({.ps_tasks = config.num_ps(), .worker_device = config.task.name()}));
  }

  Output images = ops::Placeholder(scope, DType::kFloat, {.shape = {-1, 784}});
  Output labels = ops::Placeholder(scope, DType::kInt64, {.shape = {-1}});
  Output logits = layers::Dense(scope, layers::Dense(scope, images, 100, {.activation = ops::Relu}), 10);
  Output loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits);
  Output accuracy = metrics::Accuracy(scope, labels, logits);
  Operation train =
      optimizers::GradientDescent({.learning_rate = 0.3}).Minimize(scope, loss, {.global_step = GlobalStep(scope)});
  ScalarSummary(scope, "loss", loss);

  MR_ASSIGN_OR_RETURN(const Mnist mnist, LoadMnist("examples/data/mnist"));
  MR_ASSIGN_OR_RETURN(Dataset data, Dataset::FromTensors({mnist.train_images, mnist.train_labels}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches,
                      data.Shard(std::max(1, config.num_workers()), config.worker_index())
                          .Shuffle({.seed = 1})
                          .Repeat()
                          .Batch(100)
                          .Prefetch(2)
                          .MakeIterator());

  MR_ASSIGN_OR_RETURN(std::unique_ptr<MonitoredSession> session,
                      MonitoredTrainingSession(
                          scope, {.master = server ? server->target() : "",
                                  .is_chief = config.is_chief(),
                                  .checkpoint_dir = log_dir,
                                  .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = steps})},
                                  .loss = loss}));
  MR_ASSIGN_OR_RETURN(MonitoredStep step, session->MakeStep({images, labels}, {accuracy}, {train}));
  std::vector<Tensor> batch;
  float last = 0;
  while (!session->ShouldStop()) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors result, step(batch));
    last = result[0].scalar<float>();
  }
  MR_RETURN_IF_ERROR(session->Close());
  std::printf("%s/%d is done; accuracy on its last batch %.0f %%\n", config.task.job.c_str(), config.task.index,
              100 * last);
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: guide LOG_DIR STEPS\n";
    return 2;
  }
  if (const Status status = Train(argv[1], std::atoll(argv[2])); !status.ok()) {
    std::cerr << "guide: " << status.message() << "\n";
    return 1;
  }
}
