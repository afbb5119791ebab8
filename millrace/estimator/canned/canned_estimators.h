// Estimators that are ready to use: linear models, deep networks and both together, over feature columns. Names of
// variables, metrics and predictions are TensorFlow's, so checkpoints of its canned Estimators carry over. (The slots
// of optimizers of its models that are only linear or only deep have other names there: such a checkpoint can be
// evaluated and warm-started from, but a training does not go on from it.)
//
//   namespace fc = feature_column;
//   MR_ASSIGN_OR_RETURN(RunConfig config, RunConfig::FromEnvironment({.model_dir = "run"}));
//   MR_ASSIGN_OR_RETURN(Estimator flowers,
//                       DNNClassifier(config, {.columns = {fc::Numeric("petals", {.shape = Shape({4})})},
//                                              .hidden_units = {16, 8}},
//                                     {.n_classes = 3}));
//   MR_RETURN_IF_ERROR(flowers.Train(input, {.steps = 500}));
//
// They run as any Estimator does: alone, on parameter servers, over which large tables are partitioned, or with a
// strategy. All return INVALID_ARGUMENT, naming what is wrong, for options that make no sense.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "millrace/api/embedding.h"
#include "millrace/api/layers.h"
#include "millrace/estimator/canned/head.h"
#include "millrace/estimator/estimator.h"

namespace millrace {

// Makes an optimizer for a new graph; `scope` is for its schedules.
using OptimizerFactory = std::function<std::shared_ptr<Optimizer>(const Scope& scope)>;

struct DNNOptions {
  // Dense columns.
  std::vector<FeatureColumn> columns = {};
  // The sizes of the layers, from the input on.
  std::vector<int64_t> hidden_units = {};
  layers::Activation activation = nullptr;  // null: ReLU
  // The fraction of the hidden units that a training drops.
  std::optional<double> dropout = std::nullopt;
  bool batch_norm = false;
  // Null: Adagrad with a learning rate of 0.05; beside a linear model, of 0.001.
  OptimizerFactory optimizer = nullptr;
  // Of the tables. Null: into at most as many parts as there are parameter servers, of at least 64 MB.
  Partitioner input_layer_partitioner = nullptr;
};

struct LinearOptions {
  // Dense or categorical columns.
  std::vector<FeatureColumn> columns = {};
  // Null: FTRL with a learning rate of min(0.2, 1 / sqrt(number of columns)); beside a network, of at most 0.005.
  OptimizerFactory optimizer = nullptr;
  Combiner sparse_combiner = Combiner::kSum;
  // Of the weights, as in DNNOptions.
  Partitioner partitioner = nullptr;
};

// With a head of your own.
StatusOr<Estimator> DNNEstimator(RunConfig config, DNNOptions dnn, std::shared_ptr<const Head> head,
                                 EstimatorOptions options = {});
StatusOr<Estimator> LinearEstimator(RunConfig config, LinearOptions linear, std::shared_ptr<const Head> head,
                                    EstimatorOptions options = {});
// Wide and deep: the sum of both logits. Each part has its optimizer. One of them may have no columns.
StatusOr<Estimator> DNNLinearCombinedEstimator(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                               std::shared_ptr<const Head> head, EstimatorOptions options = {});

StatusOr<Estimator> DNNClassifier(RunConfig config, DNNOptions dnn, ClassifierOptions head = {},
                                  EstimatorOptions options = {});
StatusOr<Estimator> DNNRegressor(RunConfig config, DNNOptions dnn, RegressorOptions head = {},
                                 EstimatorOptions options = {});
StatusOr<Estimator> LinearClassifier(RunConfig config, LinearOptions linear, ClassifierOptions head = {},
                                     EstimatorOptions options = {});
StatusOr<Estimator> LinearRegressor(RunConfig config, LinearOptions linear, RegressorOptions head = {},
                                    EstimatorOptions options = {});
StatusOr<Estimator> DNNLinearCombinedClassifier(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                                ClassifierOptions head = {}, EstimatorOptions options = {});
StatusOr<Estimator> DNNLinearCombinedRegressor(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                               RegressorOptions head = {}, EstimatorOptions options = {});

struct BaselineOptions {
  OptimizerFactory optimizer = nullptr;  // null: FTRL with a learning rate of 0.3
};
// What can be predicted without looking at the features: the frequencies of the classes, the mean of the labels.
StatusOr<Estimator> BaselineEstimator(RunConfig config, std::shared_ptr<const Head> head, BaselineOptions baseline = {},
                                      EstimatorOptions options = {});
StatusOr<Estimator> BaselineClassifier(RunConfig config, ClassifierOptions head = {}, BaselineOptions baseline = {},
                                       EstimatorOptions options = {});
StatusOr<Estimator> BaselineRegressor(RunConfig config, RegressorOptions head = {}, BaselineOptions baseline = {},
                                      EstimatorOptions options = {});

}  // namespace millrace
