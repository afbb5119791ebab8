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

Output Logits(const Scope& scope, const Output& images, bool training) {
  Output h = layers::Dense(scope, images, 128, {.activation = ops::Relu});
  h = layers::Dropout(scope, h, 0.1, training);
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
    return losses::SparseSoftmaxCrossEntropy(replica, in[1], Logits(replica, in[0], /*training=*/true));
  });
  const Output mean_loss = strategy->Reduce(scope, ReplicaReduction::kMean, loss);
  optimizers::Adam adam({.learning_rate = 0.002});
  const Operation train = strategy->Minimize(scope, adam, loss);

  // The test images, in batches that need not be whole, shared by all workers.
  constexpr int64_t kTestBatch = 300;
  const ReplicaInputs test = strategy->MakeInputs(scope, kTestBatch, {{DType::kFloat, {784}}, {DType::kInt64, {}}},
                                                  /*drop_remainder=*/false);
  const PerReplica counted = strategy->Run(scope, test, [](const Scope& replica, const std::vector<Output>& in) {
    return metrics::NumCorrect(replica, in[1], Logits(replica, in[0], /*training=*/false));
  });
  const Output num_correct = strategy->Reduce(scope, ReplicaReduction::kSum, counted);

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
  MR_ASSIGN_OR_RETURN(const Dataset test_examples, Dataset::FromTensors({data.test_images, data.test_labels}));
  const DistributeOptions once{.batch_size = kTestBatch, .shuffle_buffer = -1, .repeat = 1, .drop_remainder = false};
  MR_ASSIGN_OR_RETURN(const Dataset test_batches, strategy->DistributeDataset(test_examples, once));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> test_it, test_batches.MakeIterator());
  int64_t correct = 0;
  for (;;) {
    MR_ASSIGN_OR_RETURN(const bool more, test_it->Next(&element));
    if (!more) break;
    ClientSession::Feeds feeds;
    for (size_t i = 0; i < element.size(); ++i) feeds.emplace_back(test.feeds[i], element[i]);
    MR_ASSIGN_OR_RETURN(const Tensors sum, session->raw_session()->Run(feeds, {num_correct}));
    correct += sum[0].scalar<int64_t>();
  }
  std::printf("worker %d of %d: loss %.9g after %lld steps, %lld of %lld test images right\n", strategy->worker_index(),
              strategy->num_workers(), told.empty() ? 0.0 : told[0].scalar<float>(), static_cast<long long>(steps),
              static_cast<long long>(correct), static_cast<long long>(data.test_labels.num_elements()));
  return session->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Run(argc > 1 ? argv[1] : "examples/data/mnist", argc > 2 ? std::atoll(argv[2]) : 500,
                            argc > 3 ? std::atoi(argv[3]) : 1);
  if (!status.ok()) std::cerr << "mnist_strategy: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
