// Metrics over many batches, TensorFlow's tf.metrics: sums in local variables, an op that adds a batch to them, and the
// value that they give.
//
//   streaming::Metric accuracy = streaming::Accuracy(scope, labels, predicted_classes);
//   session.Run(LocalVariablesInitializer(scope));
//   for (each batch) session.Run(feeds, {}, {accuracy.update});
//   session.Run({accuracy.value});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/api/variable.h"

namespace millrace::streaming {

// The state of a metric is a list of sums, so that those of several shards, replicas or evaluators can be added up: the
// value of all of them is `result` of the added sums. In a replica of a strategy, each replica has sums of its own,
// which Strategy::ReadVariable adds up.
struct Metric {
  // Of what has been added so far; float, and 0 if that is nothing.
  Output value = {};
  // Adds a batch. In TensorFlow this op also returns the new value.
  Operation update = {};
  // Local variables, of type double, so that counts are exact and long sums lose nothing.
  std::vector<Var> totals = {};
  // The value for given totals, in any scope of the graph.
  std::function<Output(const Scope& scope, const std::vector<Output>& totals)> result = nullptr;
};

struct MetricOptions {
  // How much each example counts, by default 1: a number, or a tensor that is broadcast to the examples.
  Input weights = Input();
};

// The mean of all elements.
Metric Mean(const Scope& scope, const Input& values, const MetricOptions& options = {});
// The mean of each element over the batches, which all have the shape `values`, known when the graph is built.
Metric MeanTensor(const Scope& scope, const Input& values, const MetricOptions& options = {});
// The fraction of predictions that equal their labels. Both have the same shape; class indices, not logits.
Metric Accuracy(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options = {});
// The fraction of examples whose label is among the k largest predictions. labels: [batch]; predictions: [batch,
// classes].
Metric InTopK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
              const MetricOptions& options = {});
// The fraction of elements that are below the threshold.
Metric PercentageBelow(const Scope& scope, const Input& values, double threshold, const MetricOptions& options = {});

Metric MeanAbsoluteError(const Scope& scope, const Input& labels, const Input& predictions,
                         const MetricOptions& options = {});
Metric MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                        const MetricOptions& options = {});
Metric RootMeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                            const MetricOptions& options = {});
// |labels - predictions| / normalizer, 0 where that is 0.
Metric MeanRelativeError(const Scope& scope, const Input& labels, const Input& predictions, const Input& normalizer,
                         const MetricOptions& options = {});
// 1 - the mean of the scalar products along dimension `dim`. Both must have unit length. The weights, if they are a
// tensor, have 1 in that dimension.
Metric MeanCosineDistance(const Scope& scope, const Input& labels, const Input& predictions, int dim,
                          const MetricOptions& options = {});

// Labels and predictions of two classes; what is not 0 is positive. The (weighted) number of each outcome.
Metric TruePositives(const Scope& scope, const Input& labels, const Input& predictions,
                     const MetricOptions& options = {});
Metric TrueNegatives(const Scope& scope, const Input& labels, const Input& predictions,
                     const MetricOptions& options = {});
Metric FalsePositives(const Scope& scope, const Input& labels, const Input& predictions,
                      const MetricOptions& options = {});
Metric FalseNegatives(const Scope& scope, const Input& labels, const Input& predictions,
                      const MetricOptions& options = {});
// Of the examples predicted to be positive, the fraction that is; of the positive ones, the fraction predicted to be.
Metric Precision(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options = {});
Metric Recall(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options = {});

// Class indices below num_classes; a step fails with INVALID_ARGUMENT for others.
// [num_classes, num_classes]: how often label i (row) was predicted as j (column).
Metric ConfusionMatrix(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
                       const MetricOptions& options = {});
// The mean over the classes of right predictions / examples of the class; a class without examples counts as 0.
Metric MeanPerClassAccuracy(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
                            const MetricOptions& options = {});
// The mean over the classes that occurred of intersection / union.
Metric MeanIou(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
               const MetricOptions& options = {});

// Predictions from 0 to 1 that are positive above a threshold. Values are [thresholds].
Metric TruePositivesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                 const std::vector<float>& thresholds, const MetricOptions& options = {});
Metric TrueNegativesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                 const std::vector<float>& thresholds, const MetricOptions& options = {});
Metric FalsePositivesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                  const std::vector<float>& thresholds, const MetricOptions& options = {});
Metric FalseNegativesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                  const std::vector<float>& thresholds, const MetricOptions& options = {});
Metric PrecisionAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                             const std::vector<float>& thresholds, const MetricOptions& options = {});
Metric RecallAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                          const std::vector<float>& thresholds, const MetricOptions& options = {});

struct AucOptions {
  Input weights = Input();
  int64_t num_thresholds = 200;
  // "ROC", or "PR" for precision over recall.
  std::string curve = "ROC";
  // How the area between two thresholds is computed: "trapezoidal", "minoring", "majoring", or
  // "careful_interpolation", which is the right one for PR.
  std::string summation_method = "trapezoidal";
};
// The area under the curve, from counts at thresholds that lie evenly in [0, 1].
Metric Auc(const Scope& scope, const Input& labels, const Input& predictions, const AucOptions& options = {});

struct OperatingPointOptions {
  Input weights = Input();
  int64_t num_thresholds = 200;
};
// Sensitivity (true positive rate) at the threshold whose specificity (true negative rate) is nearest to the given one,
// and the other way round.
Metric SensitivityAtSpecificity(const Scope& scope, const Input& labels, const Input& predictions, double specificity,
                                const OperatingPointOptions& options = {});
Metric SpecificityAtSensitivity(const Scope& scope, const Input& labels, const Input& predictions, double sensitivity,
                                const OperatingPointOptions& options = {});

struct TopKOptions {
  // One weight per example, or a number.
  Input weights = Input();
  // If not negative, only this class counts, among the labels and among the predictions.
  int64_t class_id = -1;
};
// Examples that may have several labels: [batch, labels], distinct in a row, or [batch]. predictions: [batch, classes],
// of which the k largest count. A label outside of the classes is never found.
Metric RecallAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                 const TopKOptions& options = {});
Metric PrecisionAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                    const TopKOptions& options = {});
// The same with the classes that were predicted, [batch, k].
Metric RecallAtTopK(const Scope& scope, const Input& labels, const Input& top_classes, const TopKOptions& options = {});
Metric PrecisionAtTopK(const Scope& scope, const Input& labels, const Input& top_classes,
                       const TopKOptions& options = {});
// The mean over the examples of the precisions at the ranks of their labels.
Metric AveragePrecisionAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                           const MetricOptions& options = {});

}  // namespace millrace::streaming
