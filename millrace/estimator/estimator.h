// A model with its checkpoints: trained, evaluated and used for predictions by one object, alone or as a task of a
// cluster.
//
//   EstimatorSpec Model(const Scope& scope, const ModelArgs& args) {
//     Output logits = layers::Dense(scope, args.feature(scope), 10);
//     EstimatorSpec spec{.predictions = {{"class", ops::ArgMax(scope, logits, 1)}}};
//     if (args.mode == ModelMode::kPredict) return spec;
//     spec.loss = losses::SparseSoftmaxCrossEntropy(scope, args.label(scope), logits);
//     spec.optimizer = std::make_shared<optimizers::Adam>();
//     spec.eval_metric_ops["accuracy"] = streaming::Accuracy(scope, args.label(scope), spec.predictions["class"]);
//     return spec;
//   }
//   MR_ASSIGN_OR_RETURN(RunConfig config, RunConfig::FromEnvironment({.model_dir = "run"}));
//   MR_ASSIGN_OR_RETURN(Estimator estimator, Estimator::Create(Model, config));
//   MR_RETURN_IF_ERROR(estimator.Train(train_input, {.steps = 1000}));
//   MR_ASSIGN_OR_RETURN(EvalResults results, estimator.Evaluate(test_input));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/estimator/model_function.h"
#include "millrace/estimator/serving.h"
#include "millrace/train/checkpoint/warm_start.h"
#include "millrace/train/hooks/checkpoint_saver_hook.h"

namespace millrace {

struct TrainOptions {
  // Give at most one: a number of steps from here on, or the global step at which to stop. Without either the training
  // goes on to the end of the input.
  std::optional<int64_t> steps = std::nullopt;
  std::optional<int64_t> max_steps = std::nullopt;
  Hooks hooks = {};
  // Called around each checkpoint. If there are any, saving is not done in the background.
  std::vector<std::shared_ptr<CheckpointSaverListener>> saving_listeners = {};
};

struct EvaluateOptions {
  // The number of batches; all of the input by default.
  std::optional<int64_t> steps = std::nullopt;
  Hooks hooks = {};
  // A checkpoint's prefix; the newest of model_dir if empty.
  std::string checkpoint_path = {};
  // Of this evaluation among several: its events are written to MODEL_DIR/eval_NAME instead of MODEL_DIR/eval.
  std::string name = {};
};
struct EvalResults {
  // By the names of eval_metric_ops, and "loss", the mean over the batches.
  std::map<std::string, Tensor> values = {};
  int64_t global_step = 0;
  std::string checkpoint = {};
  std::string events_dir = {};  // where its events are

  // A scalar of `values` as a number; NaN if there is none of that name.
  double number(const std::string& name) const;
  std::string ToString() const;  // "accuracy = 0.97, loss = 0.1, global_step = 500"
};

struct PredictOptions {
  // The names of the predictions that are wanted; all if empty.
  std::vector<std::string> predict_keys = {};
  Hooks hooks = {};
  std::string checkpoint_path = {};
  // Whether each result is that of one example, or of a batch.
  bool yield_single_examples = true;
};

// Results in the order of the input. Not thread-safe.
class Predictions {
 public:
  virtual ~Predictions() = default;
  // Returns false at the end of the input.
  virtual StatusOr<bool> Next(std::map<std::string, Tensor>* prediction) = 0;
};

struct EstimatorOptions {
  ModelParams params = {};
  // A checkpoint that the first training's variables are initialised from; see warm_start.h.
  std::string warm_start_from = {};
  WarmStartOptions warm_start = {};
};

// Used by one thread at a time. Each call builds a graph of its own, and what is learnt is in `model_dir`: the newest
// checkpoint there is what a call goes on from.
class Estimator {
 public:
  // INVALID_ARGUMENT without a model function or a model_dir.
  static StatusOr<Estimator> Create(ModelFn model, RunConfig config, EstimatorOptions options = {});

  // Trains from the newest checkpoint, if there is one, and saves by the RunConfig and at the end. Returns at once if
  // that checkpoint has reached max_steps. In a cluster the variables are on the parameter servers, and the server of
  // this task must be running: see TrainAndEvaluate, which starts it. A strategy has started its own.
  Status Train(const InputFn& input, TrainOptions options = {});
  // Evaluates a checkpoint in this process. NOT_FOUND if there is none.
  StatusOr<EvalResults> Evaluate(const InputFn& input, EvaluateOptions options = {});
  // NOT_FOUND if there is no checkpoint, or no prediction of a name that is wanted.
  StatusOr<std::unique_ptr<Predictions>> Predict(const InputFn& input, PredictOptions options = {});

  // Writes a SavedModel with a checkpoint's variables to a new folder of `export_dir_base`, whose path it returns:
  // "BASE/1700000000", the time in seconds. The folder is whole or absent at any time. Signatures are those of
  // EstimatorSpec::export_outputs, by default all predictions. NOT_FOUND if there is no checkpoint; INVALID_ARGUMENT if
  // there is nothing to feed or to export.
  StatusOr<std::string> ExportSavedModel(const std::string& export_dir_base, const ServingInputFn& serving_input,
                                         const ExportOptions& options = {});

  // The newest checkpoint's prefix; "" if there is none.
  StatusOr<std::string> LatestCheckpoint() const;
  // Of the newest checkpoint.
  StatusOr<std::vector<std::string>> GetVariableNames() const;
  StatusOr<Tensor> GetVariableValue(const std::string& name) const;
  // MODEL_DIR/eval or MODEL_DIR/eval_NAME.
  std::string EvalDir(const std::string& name = "") const;

  const std::string& model_dir() const { return config_.model_dir(); }
  const RunConfig& config() const { return config_; }
  const ModelParams& params() const { return options_.params; }
  const ModelFn& model_fn() const { return model_; }

 private:
  Estimator(ModelFn model, RunConfig config, EstimatorOptions options)
      : model_(std::move(model)), config_(std::move(config)), options_(std::move(options)) {}
  StatusOr<std::string> CheckpointFor(const std::string& wanted, const char* what) const;

  ModelFn model_;
  RunConfig config_;
  EstimatorOptions options_;
};

}  // namespace millrace
