// Model parallelism: the layers of one network are on different tasks. Activations go from task to task in the forward
// pass, gradients in the backward pass, and every layer's variables stay on the layer's task.
//
// Worker 0 is the client. The other tasks only serve, so `millrace serve` with the same flags can be used for them.
//
//   HOSTS="--ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224"
//   model_parallel $HOSTS --job_name=ps --task_index=0 &
//   model_parallel $HOSTS --job_name=worker --task_index=1 &
//   model_parallel $HOSTS --job_name=worker --task_index=0
#include "examples/cluster/task.h"

using namespace millrace;

namespace {

Status Run(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, StartTask(flags));
  if (flags.job_name == "ps" || flags.task_index != 0) {
    server->Join();
    return absl::OkStatus();
  }
  if (flags.num_workers() < 2)
    return InvalidArgument("the layers are placed on two workers: give two addresses in --worker_hosts");

  Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  Scope first = root.WithDevice("/job:worker/task:0"), second = root.WithDevice("/job:worker/task:1"),
        last = root.WithDevice("/job:ps/task:0");
  Output images = ops::Placeholder(first, DType::kFloat, {.shape = {-1, 784}});
  Output labels = ops::Placeholder(last, DType::kInt64, {.shape = {-1}});
  Output x = layers::Dense(first.WithOpName("first"), images, 128, {.activation = ops::Relu});
  x = layers::Dense(second.WithOpName("second"), x, 64, {.activation = ops::Relu});
  Output logits = layers::Dense(last.WithOpName("last"), x, 10);
  Output loss = losses::SparseSoftmaxCrossEntropy(last, labels, logits);
  Output accuracy = metrics::Accuracy(last, labels, logits), num_correct = metrics::NumCorrect(last, labels, logits);
  // A scope without a device: gradients are colocated with their ops, and updates with the variables.
  Operation train = optimizers::GradientDescent({.learning_rate = flags.learning_rate}).Minimize(root, loss);
  Operation init = GlobalVariablesInitializer(root);
  for (const Var& variable : GlobalVariables(root)) {
    std::printf("%s is on %s\n", variable.var_name().c_str(), variable.handle().node()->requested_device().c_str());
  }

  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root, {.target = server->target()}));
  MR_RETURN_IF_ERROR(session.Run(init));
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  MR_ASSIGN_OR_RETURN(Dataset all, Dataset::FromTensors({data.train_images, data.train_labels}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches,
                      all.Shuffle({.seed = 1}).Repeat().Batch(flags.batch_size).MakeIterator());
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({images, labels}, {loss, accuracy}, {train}));
  std::vector<Tensor> batch;
  for (int64_t i = 1; i <= flags.steps; ++i) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors told, step(batch));
    if (i % 50 == 0) PrintStep(i, told[0], told[1]);
  }
  return PrintTestAccuracy(session, images, labels, num_correct, data);
}

}  // namespace

int main(int argc, char** argv) {
  return RunTask(argc, argv, "model_parallel", "Trains on MNIST with the layers of one network on three tasks.", Run);
}
