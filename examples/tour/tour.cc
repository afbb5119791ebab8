// A tour of what a graph can contain besides layers: loops with gradients, functions, input pipelines, queues and
// checkpoints. Run it with a directory for the checkpoint: tour [DIRECTORY]
#include <filesystem>
#include <iostream>

#include "millrace/millrace.h"

using namespace millrace;

namespace {

void Show(const std::string& what, const Tensor& value) { std::cout << what << ": " << value.DebugString() << "\n"; }

// x is multiplied by itself until it is above 100; the gradient flows through the loop.
Status Loop() {
  Scope scope = Scope::NewRoot();
  Output x = ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape::Scalar()});
  const std::vector<Output> y = While(
      scope, {x}, [](const Scope& s, const std::vector<Output>& v) { return ops::Less(s, v[0], 100.0f); },
      [](const Scope& s, const std::vector<Output>& v) { return std::vector<Output>{v[0] * v[0]}; });
  const Output slope = Gradients(scope, {y[0]}, {x})[0].dense();
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session.Run({{x, Tensor::Scalar<float>(2)}}, {y[0], slope}));
  Show("2, squared until it is above 100", results[0]);
  Show("its gradient", results[1]);
  return absl::OkStatus();
}

// Numbers 0 to 9, shuffled, in batches of four, until the dataset ends.
Status Pipeline() {
  const std::vector<DType> types = {DType::kInt64};
  const std::vector<PartialShape> numbers = {PartialShape::Scalar()}, batches = {PartialShape({-1})};
  Scope scope = Scope::NewRoot();
  const auto number = [&](int64_t v) { return ops::Const(scope, Tensor::Scalar<int64_t>(v)); };
  Output range = ops::RangeDataset(scope, number(0), number(10), number(1), types, numbers);
  Output shuffled = ops::ShuffleDataset(scope, range, number(10), number(1), number(2), types, numbers);
  Output batched =
      ops::BatchDatasetV2(scope, shuffled, number(4), ops::Const(scope, Tensor::Scalar(false)), types, batches);
  Output iterator = ops::IteratorV2(scope, "", "", types, batches);
  Operation start = ops::MakeIterator(scope, batched, iterator);
  Output next = ops::IteratorGetNext(scope, iterator, types, batches)[0];
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_RETURN_IF_ERROR(session.Run({}, {}, {start}).status());
  for (;;) {
    const StatusOr<std::vector<Tensor>> batch = session.Run({}, {next});
    if (absl::IsOutOfRange(batch.status())) return absl::OkStatus();
    MR_RETURN_IF_ERROR(batch.status());
    Show("batch", (*batch)[0]);
  }
}

// One step enqueues an element, a later step dequeues it.
Status Queue() {
  Scope scope = Scope::NewRoot();
  Output queue = ops::FIFOQueueV2(scope, {DType::kString}, {.capacity = 2});
  Operation put = ops::QueueEnqueueV2(scope, queue, {ops::Const(scope, Tensor::Scalar("from an earlier step"))});
  Output taken = ops::QueueDequeueV2(scope, queue, {DType::kString})[0];
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_RETURN_IF_ERROR(session.Run({}, {}, {put}).status());
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session.Run({}, {taken}));
  Show("taken from the queue", results[0]);
  return absl::OkStatus();
}

// Saved in TensorFlow's format: tf.train.load_checkpoint reads it.
Status Checkpoint(const std::string& folder) {
  Scope scope = Scope::NewRoot();
  Output prefix = ops::Const(scope, Tensor::Scalar(folder + "/model-1"));
  Output names = ops::Const(scope, Tensor::Of<std::string>({"weights"})),
         whole = ops::Const(scope, Tensor::Of<std::string>({""}));
  Output weights = ops::Const(scope, Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
  Operation save = ops::SaveV2(scope, prefix, names, whole, {weights});
  Output restored = ops::RestoreV2(scope, prefix, names, whole, {DType::kFloat})[0];
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_RETURN_IF_ERROR(session.Run({}, {}, {save}).status());
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session.Run({}, {restored}));
  Show("restored from " + folder + "/model-1", results[0]);
  return absl::OkStatus();
}

Status Tour(const std::string& folder) {
  MR_RETURN_IF_ERROR(Loop());
  MR_RETURN_IF_ERROR(Pipeline());
  MR_RETURN_IF_ERROR(Queue());
  return Checkpoint(folder);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "tour_run";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const Status status = Tour(folder);
  if (!status.ok()) std::cerr << "tour: " << status << "\n";
  return status.ok() ? 0 : 1;
}
