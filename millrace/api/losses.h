// Loss functions.
#pragma once

#include "millrace/api/variable.h"

namespace millrace::losses {

enum class Reduction {
  kMean,  // over the examples with non-zero weight
  kSum,
  kNone,  // one loss per example
};

struct LossOptions {
  Reduction reduction = Reduction::kMean;
  // One weight per example, or a number. By default all examples have the same weight.
  Input weights = Input();
};
struct SoftmaxOptions {
  Reduction reduction = Reduction::kMean;
  Input weights = Input();
  // Distributes this fraction of the label's probability evenly over all classes.
  double label_smoothing = 0;
};

// labels: int32 or int64 [batch], class indices; logits: [batch, classes].
Output SparseSoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                                 const LossOptions& options = {});
// labels: probabilities, [batch, classes].
Output SoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options = {});
// labels: 0 to 1, of the logits' shape; each element is an independent binary classification.
Output SigmoidCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const LossOptions& options = {});
Output MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                        const LossOptions& options = {});

// scale * sum(x^2) / 2; also added to RegularizationLoss.
Output L2Regularization(const Scope& scope, const Input& x, double scale);
// The sum of all regularization terms of the graph; 0 if there are none.
Output RegularizationLoss(const Scope& scope);

}  // namespace millrace::losses
