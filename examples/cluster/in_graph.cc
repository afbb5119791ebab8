// In-graph replication: one client builds one graph with a tower on each worker, and every step averages the towers'
// gradients.
//
// Worker 0 is the client. The other tasks only serve, so `millrace serve` with the same flags can be used for them.
//
//   HOSTS="--ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224"
//   in_graph $HOSTS --job_name=ps --task_index=0 &
//   in_graph $HOSTS --job_name=worker --task_index=1 &
//   in_graph $HOSTS --job_name=worker --task_index=0
#include "examples/cluster/task.h"

using namespace millrace;

namespace {

// The variables that the towers share.
struct Weights {
  Var hidden, hidden_bias, output, output_bias;
};

Output Logits(const Scope& scope, const Output& images, const Weights& w) {
  Output hidden = ops::Relu(scope, ops::BiasAdd(scope, ops::MatMul(scope, images, w.hidden), w.hidden_bias));
  return ops::BiasAdd(scope, ops::MatMul(scope, hidden, w.output), w.output_bias);
}

// One gradient for each variable: the mean of the towers' gradients, computed on the variable's task.
std::vector<GradAndVar> Average(const Scope& scope, const std::vector<std::vector<GradAndVar>>& towers) {
  std::vector<GradAndVar> result;
  for (size_t v = 0; v < towers[0].size(); ++v) {
    const Var& variable = towers[0][v].variable;
    const Scope there = scope.ColocateWith(variable.handle());
    std::vector<Output> parts;
    for (const auto& tower : towers) parts.push_back(tower[v].gradient.ToDense(there));
    result.push_back({ops::Mul(there, ops::AddN(there, parts), 1.0 / static_cast<double>(towers.size())), variable});
  }
  return result;
}

Status Run(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, StartTask(flags));
  if (flags.job_name == "ps" || flags.task_index != 0) {
    server->Join();
    return absl::OkStatus();
  }
  const int workers = flags.num_workers();
  if (flags.batch_size % workers != 0) {
    return InvalidArgument("--batch_size=", flags.batch_size, " does not split evenly over ", workers, " workers");
  }

  Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  Scope on_ps =
      root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = flags.num_ps(), .worker_device = "/job:worker/task:0"}));
  const Weights weights = {.hidden = Var(on_ps, "hidden", {784, 100}, init::GlorotUniform()),
                           .hidden_bias = Var(on_ps, "hidden_bias", {100}, init::Zeros()),
                           .output = Var(on_ps, "output", {100, 10}, init::GlorotUniform()),
                           .output_bias = Var(on_ps, "output_bias", {10}, init::Zeros())};
  Scope client = root.WithDevice("/job:worker/task:0");
  Output images = ops::Placeholder(client, DType::kFloat, {.shape = {-1, 784}});
  Output labels = ops::Placeholder(client, DType::kInt64, {.shape = {-1}});
  const std::vector<Output> image_parts = ops::Split(client, 0, images, workers),
                            label_parts = ops::Split(client, 0, labels, workers);

  optimizers::GradientDescent optimizer({.learning_rate = flags.learning_rate});
  std::vector<Output> tower_losses;
  std::vector<std::vector<GradAndVar>> gradients;
  for (int i = 0; i < workers; ++i) {
    const Scope tower = root.SubScope(absl::StrCat("tower_", i)).WithDevice(absl::StrCat("/job:worker/task:", i));
    tower_losses.push_back(
        losses::SparseSoftmaxCrossEntropy(tower, label_parts[i], Logits(tower, image_parts[i], weights)));
    gradients.push_back(optimizer.ComputeGradients(tower, tower_losses.back()));
  }
  Operation train = optimizer.ApplyGradients(on_ps, Average(on_ps, gradients), {.global_step = GlobalStep(on_ps)});
  Output loss = ops::Mul(client, ops::AddN(client, tower_losses), 1.0 / workers);
  Output logits = Logits(client.SubScope("test"), images, weights);
  Output accuracy = metrics::Accuracy(client, labels, logits),
         num_correct = metrics::NumCorrect(client, labels, logits);
  Operation init = GlobalVariablesInitializer(root);

  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root, {.target = server->target()}));
  MR_RETURN_IF_ERROR(session.Run(init));
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  MR_ASSIGN_OR_RETURN(Dataset all, Dataset::FromTensors({data.train_images, data.train_labels}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches,
                      all.Shuffle({.seed = 1}).Repeat().Batch(flags.batch_size).MakeIterator());
  std::vector<Tensor> batch;
  for (int64_t i = 1; i <= flags.steps; ++i) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    const ClientSession::Feeds feeds = {{images, batch[0]}, {labels, batch[1]}};
    if (i % 50 != 0) {
      MR_RETURN_IF_ERROR(session.Run(feeds, {}, {train}).status());
      continue;
    }
    MR_ASSIGN_OR_RETURN(const Tensors told, session.Run(feeds, {loss, accuracy}, {train}));
    PrintStep(i, told[0], told[1]);
  }
  return PrintTestAccuracy(session, images, labels, num_correct, data);
}

}  // namespace

int main(int argc, char** argv) {
  return RunTask(argc, argv, "in_graph",
                 "Trains on MNIST with one graph: a tower on each worker, their gradients averaged in every step.",
                 Run);
}
