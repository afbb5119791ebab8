// Horovod's first example: a convolutional network on the MNIST digits, trained by several processes that average
// their gradients.
//
//   millrace launch --ps 0 --workers 4 -- horovod_mnist
//   mpirun -np 4 horovod_mnist
//
// The program is the same in both; without a launcher it is one process.
#include <cstdio>
#include <iostream>

#include "examples/parse_flags.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string data_dir = "examples/data/mnist";
  std::string checkpoint_dir;
  int64_t steps = 2000;  // of all processes together
  int64_t batch_size = 100;
  double learning_rate = 0.001;
  bool fp16 = false;
  std::string carrier = "auto";
  std::string timeline;
};

struct Model {
  Output images, labels, training, loss, num_correct;
};

Model BuildModel(const Scope& scope) {
  Model m;
  m.images = ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {-1, 784}});
  m.labels = ops::Placeholder(scope.WithOpName("labels"), DType::kInt64, {.shape = {-1}});
  m.training = ops::Placeholder(scope.WithOpName("training"), DType::kBool, {.shape = PartialShape::Scalar()});
  Output x = ops::Reshape(scope, m.images, {-1, 28, 28, 1});
  x = layers::Conv2D(scope.WithOpName("conv1"), x, 32, {5, 5}, {.activation = ops::Relu});
  x = layers::MaxPool2D(scope, x, {2, 2});
  x = layers::Conv2D(scope.WithOpName("conv2"), x, 64, {5, 5}, {.activation = ops::Relu});
  x = layers::MaxPool2D(scope, x, {2, 2});
  x = layers::Dense(scope.WithOpName("dense"), layers::Flatten(scope, x), 1024, {.activation = ops::Relu});
  x = layers::Dropout(scope, x, 0.5, m.training);
  const Output logits = layers::Dense(scope.WithOpName("logits"), x, 10);
  m.loss = losses::SparseSoftmaxCrossEntropy(scope.WithOpName("loss"), m.labels, logits);
  m.num_correct = metrics::NumCorrect(scope, m.labels, logits);
  return m;
}

// The test images are divided among the processes, which add up what each has counted.
StatusOr<double> Test(MonitoredSession& session, const Model& m, const Mnist& data) {
  const int64_t total = data.test_labels.num_elements();
  constexpr int64_t kBatch = 500;
  int64_t correct = 0;
  for (int64_t i = hvd::Rank() * kBatch; i < total; i += hvd::Size() * kBatch) {
    const int64_t end = std::min(i + kBatch, total);
    MR_ASSIGN_OR_RETURN(const Tensors result, session.raw_session()->Run({{m.images, data.test_images.Slice(i, end)},
                                                                          {m.labels, data.test_labels.Slice(i, end)},
                                                                          {m.training, Tensor::Scalar(false)}},
                                                                         {m.num_correct}));
    correct += result[0].scalar<int64_t>();
  }
  MR_ASSIGN_OR_RETURN(const Tensor sum, hvd::Allreduce(Tensor::Scalar(correct), {.name = "correct", .op = hvd::kSum}));
  return static_cast<double>(sum.scalar<int64_t>()) / static_cast<double>(total);
}

Status Run(const Flags& flags) {
  MR_RETURN_IF_ERROR(hvd::Init({.carrier = flags.carrier, .timeline = flags.timeline}));
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));

  const Scope scope = Scope::NewRoot();
  const Model m = BuildModel(scope);
  const Var global_step = GlobalStep(scope);
  // Each step sees Size() times as many examples as that of one process.
  hvd::DistributedOptimizer optimizer(
      std::make_unique<optimizers::Adam>(optimizers::AdamOptions{.learning_rate = flags.learning_rate * hvd::Size()}),
      {.compression = flags.fp16 ? hvd::Compression::kFp16 : hvd::Compression::kNone});
  const Operation train = optimizer.Minimize(scope, m.loss, {.global_step = global_step});
  MR_RETURN_IF_ERROR(scope.status());

  // All processes begin with the variables of rank 0, initialised or restored.
  const Hooks hooks = {std::make_shared<hvd::BroadcastGlobalVariablesHook>(0),
                       std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = flags.steps / hvd::Size()})};
  // Only rank 0 saves; otherwise the others would overwrite its files.
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                      MonitoredTrainingSession(scope, {.checkpoint_dir = hvd::Rank() == 0 ? flags.checkpoint_dir : "",
                                                       .hooks = hooks,
                                                       .log_step_count_every_steps = 0,
                                                       .loss = m.loss}));
  MR_ASSIGN_OR_RETURN(const Dataset examples, Dataset::FromTensors({data.train_images, data.train_labels}));
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<DatasetIterator> batches,
      WorkerBatches(examples, {.num_workers = hvd::Size(), .worker_index = hvd::Rank(), .batch_size = flags.batch_size})
          .Prefetch(2)
          .MakeIterator());
  MR_ASSIGN_OR_RETURN(const MonitoredStep step,
                      session->MakeStep({m.images, m.labels, m.training}, {m.loss, global_step}, {train}));
  std::vector<Tensor> batch;
  while (!session->ShouldStop()) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors results, step({batch[0], batch[1], Tensor::Scalar(true)}));
    const int64_t done = results[1].scalar<int64_t>();
    if (hvd::Rank() == 0 && done % 10 == 0) {
      std::printf("step %lld, loss %.4f\n", static_cast<long long>(done), results[0].scalar<float>());
      std::fflush(stdout);
    }
  }
  MR_ASSIGN_OR_RETURN(const double accuracy, Test(*session, m, data));
  if (hvd::Rank() == 0) std::printf("Test accuracy %.2f %% with %d processes\n", 100 * accuracy, hvd::Size());
  MR_RETURN_IF_ERROR(session->Close());
  return hvd::Shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a network on the MNIST digits, in one process or in several that average their gradients.");
  app.add_option("--data_dir", flags.data_dir, "Directory with the MNIST files")->capture_default_str();
  app.add_option("--checkpoint_dir", flags.checkpoint_dir, "Where rank 0 saves; nowhere if empty");
  app.add_option("--steps", flags.steps, "Training steps of all processes together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Examples per step and process")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate, "Of one process; it is multiplied by their number")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--fp16", flags.fp16, "Gradients travel as half-precision numbers");
  app.add_option("--carrier", flags.carrier, "What carries the gradients: auto, lane or mpi")->capture_default_str();
  app.add_option("--timeline", flags.timeline, "A file for a trace of the operations of rank 0");
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  const Status status = Run(flags);
  if (status.ok()) return 0;
  std::cerr << "horovod_mnist: " << status << "\n";
  return 1;
}
