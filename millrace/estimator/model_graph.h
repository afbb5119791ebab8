// The graph of one training, evaluation or prediction, and the input that feeds it. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/estimator/model_function.h"
#include "millrace/train/session_creator.h"

namespace millrace::estimator_internal {

// The batches of an input function, in the order of a step's feeds. Not thread-safe.
class InputFeed {
 public:
  // Reads the first batch of `batches`, if there is one: it shows types and shapes. If `counts`, its elements end with
  // a number of examples, which is not fed, and those without any are left out.
  static StatusOr<std::unique_ptr<InputFeed>> Of(std::unique_ptr<DatasetIterator> batches, bool counts = false);
  // For an input without a dataset: feeds nothing and never ends.
  static std::unique_ptr<InputFeed> OfTensors() { return std::unique_ptr<InputFeed>(new InputFeed); }

  StatusOr<bool> Next(std::vector<Tensor>* feeds);
  // Null if the input is empty, or has no dataset.
  const std::vector<Tensor>* first() const { return has_first_ ? &first_ : nullptr; }

 private:
  InputFeed() = default;
  StatusOr<bool> Read(std::vector<Tensor>* feeds);

  std::unique_ptr<DatasetIterator> batches_;
  bool counts_ = false;
  std::vector<Tensor> first_;
  bool has_first_ = false;
};

struct ModelGraphOptions {
  ModelMode mode = ModelMode::kTrain;
  ModelFn model = nullptr;
  ModelParams params = {};
  RunConfig config = {};
  Strategy* strategy = nullptr;  // may be null
  int64_t global_step = 0;       // that the training begins with
};

struct ModelGraph {
  Scope scope = Scope::NewRoot();
  std::unique_ptr<InputFeed> input = nullptr;
  // True if the input of an evaluation or prediction has no batch: there is no model then.
  bool empty = false;
  std::vector<Output> feeds = {};
  EstimatorSpec spec = {};  // with a strategy, of this worker's first replica
  // Of a training: the loss of all replicas, and the op of a step.
  Output loss = {};
  Operation train = {};
  // Of an evaluation: the op that adds a batch to all metrics, and their values by name, "loss" among them.
  Operation update = {};
  std::vector<std::pair<std::string, Output>> metrics = {};
};

StatusOr<ModelGraph> BuildModel(const ModelGraphOptions& options, const InputFn& input);

// Sessions with the variables of one checkpoint, for evaluations and predictions.
std::unique_ptr<SessionCreator> CheckpointSessionCreator(SessionOptions session, std::shared_ptr<Scaffold> scaffold,
                                                         std::string checkpoint);

}  // namespace millrace::estimator_internal
