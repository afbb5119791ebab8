// Heads: what a model's last layer means. A head makes of logits the predictions, the loss, the metrics and what is
// exported, with TensorFlow's names for them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/estimator/feature_columns/feature_column.h"
#include "millrace/estimator/model_function.h"

namespace millrace {

// How the losses of a batch become one number.
enum class LossReduction {
  kSum,                    // TensorFlow 1's default
  kSumOverBatchSize,       // divided by the number of examples; TensorFlow 2's default
  kSumOverNonzeroWeights,  // divided by the number of examples whose weight is not 0
  kMean,                   // divided by the sum of the weights
};

class Head {
 public:
  virtual ~Head() = default;

  virtual int64_t logits_dimension() const = 0;
  // The specification for `logits`, [batch, logits_dimension]. It has no optimizer yet. Errors are those of the scope.
  virtual EstimatorSpec MakeSpec(const Scope& scope, const ModelArgs& args, const Output& logits) const = 0;
};

struct ClassifierOptions {
  int64_t n_classes = 2;
  // How much each example counts: a numeric column. A negative weight fails the step.
  std::optional<FeatureColumn> weight_column = std::nullopt;
  // The classes' names. Labels are then these strings; otherwise they are integers from 0 on.
  std::vector<std::string> label_vocabulary = {};
  LossReduction loss_reduction = LossReduction::kSum;
};
// Labels are [batch] or [batch, 1]; one that is no class fails the step.
//
//   predictions   logits, probabilities, class_ids, classes, all_class_ids, all_classes; of two classes also logistic
//   metrics       accuracy, average_loss; of two classes also accuracy_baseline, auc, auc_precision_recall, label/mean,
//                 precision, prediction/mean, recall
StatusOr<std::shared_ptr<const Head>> ClassifierHead(ClassifierOptions options = {});

struct RegressorOptions {
  int64_t label_dimension = 1;
  std::optional<FeatureColumn> weight_column = std::nullopt;
  LossReduction loss_reduction = LossReduction::kSum;
};
// Labels are numbers, [batch] or [batch, label_dimension]; the loss is the squared error.
//
//   predictions   predictions
//   metrics       average_loss, label/mean, prediction/mean
StatusOr<std::shared_ptr<const Head>> RegressorHead(RegressorOptions options = {});

}  // namespace millrace
