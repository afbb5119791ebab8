// What an Estimator calls: the function that reads the data, and the one that builds the model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/api/optimizer.h"
#include "millrace/api/streaming_metrics.h"
#include "millrace/data/dataset.h"
#include "millrace/estimator/output_map.h"
#include "millrace/estimator/run_config.h"
#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/scaffold.h"

namespace millrace {

// TensorFlow's ModeKeys.
enum class ModelMode { kTrain, kEval, kPredict };

// Hyperparameters: {"learning_rate", Tensor::Scalar(0.1f)}.
using ModelParams = std::map<std::string, Tensor>;

struct InputContext {
  ModelMode mode = ModelMode::kTrain;
  // The number of workers that each call the input function, and this worker's number among them: for Dataset::Shard.
  // An evaluation has one.
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
};

// The data of a training, an evaluation or a prediction: a dataset, or tensors of the graph.
struct EstimatorInput {
  // Elements are batches, of one component for each feature and then one for each label; for a prediction the labels
  // may be missing. A training or evaluation ends where the dataset ends.
  std::optional<Dataset> dataset = std::nullopt;
  std::vector<std::string> features = {"x"};
  std::vector<std::string> labels = {"label"};
  // Shapes of the components with the batch's dimension. By default those of the first batch, for any number of
  // examples.
  std::vector<PartialShape> shapes = {};
  // If set, the dataset has single examples, of which the Estimator makes the batches of this worker, as
  // Strategy::DistributeDataset does; `batch_size` is that of all workers together. A strategy needs this. A training
  // repeats, and a synchronous one that is resumed goes on with the batch after its checkpoint; an evaluation or
  // prediction has each example once, in order.
  std::optional<DistributeOptions> batches = std::nullopt;

  // Called in the model's graph with the tensors of a batch, by the names above: makes of them the features and labels
  // that the model gets, by parsing examples or decoding lines. Part of each step; called once for each replica of a
  // strategy.
  std::function<Status(const Scope& scope, OutputMap* features, OutputMap* labels)> transform = nullptr;

  // Instead of a dataset: tensors that the input function has built. OUT_OF_RANGE from one of them is the end.
  OutputMap feature_tensors = {};
  OutputMap label_tensors = {};
};
// Called once for each training, evaluation or prediction. `scope` is the root of the model's graph.
using InputFn = std::function<StatusOr<EstimatorInput>(const Scope& scope, const InputContext& context)>;

// What a model function is given.
struct ModelArgs {
  OutputMap features = {};
  OutputMap labels = {};  // empty in a prediction
  ModelMode mode = ModelMode::kTrain;
  ModelParams params = {};
  RunConfig config = {};

  bool training() const { return mode == ModelMode::kTrain; }
  // The tensor of that name, or the only one. The scope fails with NOT_FOUND, listing the names, if there is none.
  Output feature(const Scope& scope, const std::string& name = "") const;
  Output label(const Scope& scope, const std::string& name = "") const;
  // INVALID_ARGUMENT in the scope and `otherwise` if the parameter is not one number.
  double param(const Scope& scope, const std::string& name, double otherwise) const;
};

// What is exported for serving: a signature of a SavedModel.
struct ExportOutput {
  enum class Method { kPredict, kClassify, kRegress };
  Method method = Method::kPredict;
  OutputMap outputs = {};
};
// Any outputs.
ExportOutput PredictOutput(OutputMap outputs);
// Scores (float) and classes (strings) of each example, or one of them; an Output that is empty is left out.
ExportOutput ClassificationOutput(const Output& scores, const Output& classes = {});
// A number (float) for each example.
ExportOutput RegressionOutput(const Output& value);

// The model. Each mode needs some of it:
//
//   kTrain    loss, and `optimizer` or `train_op`
//   kEval     loss
//   kPredict  predictions
struct EstimatorSpec {
  OutputMap predictions = {};
  // A scalar.
  Output loss = {};
  // Minimises the loss, and adds 1 to the global step. A strategy needs this one.
  std::shared_ptr<Optimizer> optimizer = nullptr;
  MinimizeOptions minimize = {};
  // Instead of an optimizer: an op that makes a training step, and adds 1 to GlobalStep.
  Operation train_op = {};
  std::map<std::string, streaming::Metric> eval_metric_ops = {};
  std::map<std::string, ExportOutput> export_outputs = {};
  Hooks training_hooks = {};
  Hooks training_chief_hooks = {};
  Hooks evaluation_hooks = {};
  Hooks prediction_hooks = {};
  // How variables are initialised and saved; null: the defaults.
  std::shared_ptr<Scaffold> scaffold = nullptr;
};

// Builds the model in `scope`. Errors are those of the scope. With a strategy it is called for each replica of this
// worker, whose hooks other than those of the first are dropped.
using ModelFn = std::function<EstimatorSpec(const Scope& scope, const ModelArgs& args)>;

}  // namespace millrace
