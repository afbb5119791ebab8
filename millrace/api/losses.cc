#include "millrace/api/losses.h"

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/scope_state.h"

namespace millrace::losses {
namespace {

using api_internal::Cast;
using api_internal::MeanAll;
using api_internal::SumAll;

Output Reduce(const Scope& scope, const Output& each, Reduction reduction, const Input& weights) {
  if (weights.is_nothing()) {
    switch (reduction) {
      case Reduction::kMean:
        return MeanAll(scope.WithOpName("value"), each);
      case Reduction::kSum:
        return SumAll(scope.WithOpName("value"), each);
      case Reduction::kNone:
        return each;
    }
  }
  const Output w = Cast(scope, weights.In(scope, each.dtype(), "weights"), each.dtype());
  const Output weighted = each * w;
  if (reduction == Reduction::kNone) return weighted;
  const Output sum = SumAll(scope, weighted);
  if (reduction == Reduction::kSum) return sum;
  // A weight that is broadcast to several examples counts once for each.
  const Output counted = Cast(scope, Op(scope, "NotEqual", {w + Op(scope, "ZerosLike", {each}), 0}), each.dtype());
  const Output count = SumAll(scope, counted);
  return Op(scope.WithOpName("value"), "DivNoNan", {sum, count});
}

}  // namespace

Output SparseSoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                                 const LossOptions& options) {
  const Scope s = scope.ForComposite("sparse_softmax_cross_entropy");
  const Output each = Op(s, "SparseSoftmaxCrossEntropyWithLogits", {logits, labels});
  return Reduce(s, each, options.reduction, options.weights);
}

Output SoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options) {
  const Scope s = scope.ForComposite("softmax_cross_entropy");
  const Output x = logits.In(s);
  Output target = Cast(s, labels.In(s, x.dtype()), x.dtype());
  if (options.label_smoothing != 0) {
    if (x.shape().known_rank() && x.shape().rank() == 2 && x.shape().dim(1) > 0) {
      target = target * (1 - options.label_smoothing) + options.label_smoothing / static_cast<double>(x.shape().dim(1));
    } else {
      s.UpdateStatus(InvalidArgument("label smoothing in scope '", s.prefix(),
                                     "' needs to know the number of classes; the logits have shape ",
                                     x.shape().ToString()));
    }
  }
  const Output each = Op(s, "SoftmaxCrossEntropyWithLogits", {x, target});
  return Reduce(s, each, options.reduction, options.weights);
}

Output SigmoidCrossEntropy(const Scope& scope, const Input& labels, const Input& logits, const LossOptions& options) {
  const Scope s = scope.ForComposite("sigmoid_cross_entropy");
  const Output x = logits.In(s);
  const Output z = Cast(s, labels.In(s, x.dtype()), x.dtype());
  // -z log(sigmoid(x)) - (1 - z) log(1 - sigmoid(x)), without overflow for large |x|.
  const Output each = Op(s, "Sub", {Op(s, "Softplus", {x}), Op(s, "Mul", {x, z})});
  return Reduce(s, each, options.reduction, options.weights);
}

Output MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions, const LossOptions& options) {
  const Scope s = scope.ForComposite("mean_squared_error");
  const Output each = Op(s, "SquaredDifference", {predictions, labels});
  return Reduce(s, each, options.reduction, options.weights);
}

Output L2Regularization(const Scope& scope, const Input& x, double scale) {
  const Scope s = scope.ForComposite("l2_regularization");
  const Output loss = Op(s, "Mul", {Op(s, "L2Loss", {x}), scale});
  if (!loss.empty()) api_internal::StateOf(s).regularization_losses.push_back(loss.endpoint());
  return loss;
}

Output RegularizationLoss(const Scope& scope) {
  const Scope s = scope.ForComposite("regularization_loss");
  Output sum;
  for (const Endpoint& loss : api_internal::StateOf(s).regularization_losses) {
    sum = sum.empty() ? Output(s, loss) : sum + Output(s, loss);
  }
  return sum.empty() ? Input(0.0).In(s) : sum;
}

}  // namespace millrace::losses
