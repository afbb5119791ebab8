// Loss functions: those of tf.losses.
//
//   Output loss = losses::HuberLoss(scope, labels, predictions, {.delta = 2});
//
// Each adds its result to the losses of the graph, of which GetTotalLoss is the sum, with regularization.
#pragma once

#include <vector>

#include "millrace/api/variable.h"

namespace millrace::losses {

// What becomes of the losses of the elements, each times its weight.
enum class Reduction {
  kNone,                 // they stay as they are
  kSum,                  // their sum
  kMean,                 // that divided by the sum of the weights
  kSumOverBatchSize,     // that divided by the number of elements
  kSumByNonzeroWeights,  // that divided by the number of elements whose weight is not 0
};

struct LossOptions {
  Reduction reduction = Reduction::kSumByNonzeroWeights;
  // A number, or a tensor with as many dimensions as the losses of the elements, of the same size or of size 1. By
  // default all elements have the weight 1.
  Input weights = Input();
  // Whether the result is one of GetLosses.
  bool add_to_losses = true;
};
struct SoftmaxOptions {
  Reduction reduction = Reduction::kSumByNonzeroWeights;
  Input weights = Input();
  // Distributes this fraction of the label's probability evenly over all classes.
  double label_smoothing = 0;
  bool add_to_losses = true;
};
struct HuberOptions {
  Reduction reduction = Reduction::kSumByNonzeroWeights;
  Input weights = Input();
  double delta = 1;  // where the loss changes from quadratic to linear
  bool add_to_losses = true;
};
struct LogLossOptions {
  Reduction reduction = Reduction::kSumByNonzeroWeights;
  Input weights = Input();
  double epsilon = 1e-7;  // added to the arguments of the logarithms
  bool add_to_losses = true;
};

// In all of these the scope fails with INVALID_ARGUMENT if labels and predictions, or the losses and the weights, have
// shapes that cannot match.

// labels: int32 or int64, class indices, of the shape of logits without the last dimension, or with 1 for it; logits:
// [..., classes].
Output SparseSoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                                 const LossOptions& options = {});
// labels: probabilities, [batch, classes].
Output SoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options = {});
// labels: 0 to 1, of the logits' shape; each element is an independent binary classification. Label smoothing moves
// them towards 1/2.
Output SigmoidCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options = {});
Output MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                        const LossOptions& options = {});
// |predictions - labels|
Output AbsoluteDifference(const Scope& scope, const Input& labels, const Input& predictions,
                          const LossOptions& options = {});
// d^2 / 2 for differences d up to delta, delta * |d| - delta^2 / 2 beyond.
Output HuberLoss(const Scope& scope, const Input& labels, const Input& predictions, const HuberOptions& options = {});
// max(0, 1 - (2 labels - 1) logits); labels are 0 or 1.
Output HingeLoss(const Scope& scope, const Input& labels, const Input& logits, const LossOptions& options = {});
// -labels log(predictions) - (1 - labels) log(1 - predictions)
Output LogLoss(const Scope& scope, const Input& labels, const Input& predictions, const LogLossOptions& options = {});
// 1 - sum(labels * predictions) along `axis`, which has size 1 in the losses. Both are taken to be of length 1.
Output CosineDistance(const Scope& scope, const Input& labels, const Input& predictions, int64_t axis,
                      const LossOptions& options = {});
struct PairwiseOptions {
  // A number, or [batch, 1, ...].
  Input weights = Input();
  bool add_to_losses = true;
};
// The squares of the differences between the errors of any two elements of an example: their mean over all pairs,
// summed over the batch. Elements of weight 0 are left out.
Output MeanPairwiseSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                                const PairwiseOptions& options = {});

// What the functions above do with the losses of the elements, for losses of your own.
Output ComputeWeightedLoss(const Scope& scope, const Output& losses, const LossOptions& options = {});
void AddLoss(const Output& loss);

// The losses of the graph; in a replica of a strategy, those of the replica.
std::vector<Output> GetLosses(const Scope& scope);
// Those of variables. They are the same in all replicas.
std::vector<Output> GetRegularizationLosses(const Scope& scope);
// The sum of the losses and, unless that is switched off, of the regularization losses. INVALID_ARGUMENT in the scope
// if there are none.
Output GetTotalLoss(const Scope& scope, bool add_regularization_losses = true);

// scale * sum(x^2) / 2; also added to RegularizationLoss.
Output L2Regularization(const Scope& scope, const Input& x, double scale);
// The sum of all regularization terms of the graph; 0 if there are none.
Output RegularizationLoss(const Scope& scope);

}  // namespace millrace::losses
