// How wrong a model is, as one number to minimise.
#pragma once

#include "millrace/api/variable.h"

namespace millrace::losses {

enum class Reduction {
  kMean,  // over the examples, those of weight 0 not counted
  kSum,
  kNone,  // one loss for each example
};

struct LossOptions {
  Reduction reduction = Reduction::kMean;
  // One for each example, or a number; left out, all count the same.
  Input weights = Input();
};
struct SoftmaxOptions {
  Reduction reduction = Reduction::kMean;
  Input weights = Input();
  // Moves this share of the probability from the label to all classes evenly.
  double label_smoothing = 0;
};

// labels: int32 or int64 [batch], the number of the class; logits: [batch, classes].
Output SparseSoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                                 const LossOptions& options = {});
// labels: probabilities, [batch, classes].
Output SoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options = {});
// labels: 0 to 1, of the logits' shape; each element is a question of its own.
Output SigmoidCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const LossOptions& options = {});
Output MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                        const LossOptions& options = {});

// scale * sum(x^2) / 2, remembered for RegularizationLoss.
Output L2Regularization(const Scope& scope, const Input& x, double scale);
// The sum of what was remembered; 0 when nothing was.
Output RegularizationLoss(const Scope& scope);

}  // namespace millrace::losses
