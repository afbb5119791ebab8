// Trains a network on the MNIST digits with a strategy: on this process, on several devices of it, or on several
// workers, by changing one line. The weights are the same in all cases, byte for byte.
//
//   mnist_strategy                                                # one process
//   mnist_strategy examples/data/mnist 1000 4                     # four devices of one process
//   millrace launch --ps 0 --workers 3 -- mnist_strategy          # three processes
#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

Output Logits(const Scope& scope, const Output& images) {
  Output h = layers::Dense(scope, images, 128, {.activation = ops::Relu});
  h = layers::Dropout(scope, h, 0.1, /*training=*/true);
  return layers::Dense(scope, h, 10);
}

Status Run(const std::string& data_dir, int64_t steps, int devices) {
  StrategyOptions options;
  for (int i = 0; i < devices; ++i) options.devices.push_back(absl::StrCat("/device:CPU:", i));
  // The one line: OneDeviceStrategy, MirroredStrategy (one process) or this one (the processes of TF_CONFIG).
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Strategy> strategy, MultiWorkerMirroredStrategy(options));

  constexpr int64_t kBatch = 128;  // of all workers together
  const Scope scope = strategy->NewScope();
  scope.SetRandomSeed(1);
  const ReplicaInputs batch = strategy->MakeInputs(scope, kBatch, {{DType::kFloat, {784}}, {DType::kInt64, {}}});
  const PerReplica loss = strategy->Run(scope, batch, [](const Scope& replica, const std::vector<Output>& in) {
    return losses::SparseSoftmaxCrossEntropy(replica, in[1], Logits(replica, in[0]));
  });
  const Output mean_loss = strategy->Reduce(scope, ReplicaReduction::kMean, loss);
  optimizers::Adam adam({.learning_rate = 0.002});
  const Operation train = strategy->Minimize(scope, adam, loss);

  auto stop = std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = steps});
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                      strategy->TrainingSession(scope, {.hooks = {stop}, .loss = mean_loss}));
  MR_ASSIGN_OR_RETURN(const MonitoredStep step, session->MakeStep(batch.feeds, {mean_loss}, {train}));
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(data_dir));
  MR_ASSIGN_OR_RETURN(const Dataset examples, Dataset::FromTensors({data.train_images, data.train_labels}));
  MR_ASSIGN_OR_RETURN(const Dataset batches, strategy->DistributeDataset(examples, {.batch_size = kBatch}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> it, strategy->MakeIterator(batches));
  std::vector<Tensor> element;
  Tensors told;
  while (!session->ShouldStop()) {
    MR_ASSIGN_OR_RETURN(const bool more, it->Next(&element));
    if (!more) break;
    MR_RETURN_IF_ERROR(step.Run(element, &told));
  }
  std::printf("worker %d of %d: loss %.9g after %lld steps\n", strategy->worker_index(), strategy->num_workers(),
              told.empty() ? 0.0 : told[0].scalar<float>(), static_cast<long long>(steps));
  return session->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Run(argc > 1 ? argv[1] : "examples/data/mnist", argc > 2 ? std::atoll(argv[2]) : 500,
                            argc > 3 ? std::atoi(argv[3]) : 1);
  if (!status.ok()) std::cerr << "mnist_strategy: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
