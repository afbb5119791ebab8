#include "millrace/api/losses.h"

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/regularizers.h"
#include "millrace/api/replica.h"
#include "millrace/api/scope_state.h"

namespace millrace::losses {
namespace {

using api_internal::Cast;
using api_internal::MeanAll;
using api_internal::StateOf;
using api_internal::SumAll;

Output Failed(const Scope& s, const Status& status) {
  s.UpdateStatus(status);
  return Output(s, Endpoint{});
}

Status CheckSameShape(const Scope& s, const Output& labels, const Output& predictions) {
  if (labels.shape().IsCompatibleWith(predictions.shape())) return absl::OkStatus();
  return InvalidArgument("loss ", s.prefix(), ": the labels have shape ", labels.shape().ToString(),
                         ", the predictions ", predictions.shape().ToString());
}

// A number, or a tensor that is broadcast along dimensions of size 1 alone.
Status CheckWeights(const Scope& s, const Output& weights, const Output& each) {
  const PartialShape w = weights.shape(), e = each.shape();
  if (!w.known_rank() || !e.known_rank() || w.rank() == 0) return absl::OkStatus();
  bool fits = w.rank() == e.rank();
  for (int i = 0; fits && i < w.rank(); ++i) fits = w.dim(i) <= 1 || e.dim(i) < 0 || w.dim(i) == e.dim(i);
  if (fits) return absl::OkStatus();
  return InvalidArgument("loss ", s.prefix(), ": weights of shape ", w.ToString(), " do not fit losses of shape ",
                         e.ToString(), "; dimensions must be as many, and of the same size or 1");
}

Output WeightsIn(const Scope& s, const Input& weights, const Output& each) {
  const Output w = Cast(s, weights.In(s, each.dtype(), "weights"), each.dtype());
  if (s.ok()) s.UpdateStatus(CheckWeights(s, w, each));
  return w;
}

Output Reduce(const Scope& scope, const Output& each, Reduction reduction, const Input& weights) {
  const Scope value = scope.WithOpName("value");
  if (weights.is_nothing()) {
    if (reduction == Reduction::kNone) return each;
    return reduction == Reduction::kSum ? SumAll(value, each) : MeanAll(value, each);
  }
  const Output w = WeightsIn(scope, weights, each);
  const Output weighted = each * w;
  if (reduction == Reduction::kNone) return weighted;
  const Output sum = SumAll(scope, weighted);
  if (reduction == Reduction::kSum) return sum;
  if (reduction == Reduction::kSumOverBatchSize) {
    return Op(value, "DivNoNan", {sum, Cast(scope, Op(scope, "Size", {each}), each.dtype())});
  }
  // A weight that is broadcast to several elements counts once for each.
  const Output spread = w + Op(scope, "ZerosLike", {each});
  if (reduction == Reduction::kMean) return Op(value, "DivNoNan", {sum, SumAll(scope, spread)});
  const Output counted = Cast(scope, Op(scope, "NotEqual", {spread, 0}), each.dtype());
  return Op(value, "DivNoNan", {sum, SumAll(scope, counted)});
}

int ReplicaOf(const Scope& scope) {
  const auto& replica = api_internal::SettingsOf(scope).replica;
  return replica == nullptr ? -1 : replica->number;
}

template <typename Options>
Output Result(const Scope& s, const Output& each, const Options& options) {
  const Output loss = Reduce(s, each, options.reduction, options.weights);
  if (options.add_to_losses) AddLoss(loss);
  return loss;
}

// Labels and predictions of one type and shape.
struct Pair {
  Output labels, predictions;
};
Pair InOneType(const Scope& s, const Input& labels, const Input& predictions) {
  Pair pair;
  pair.predictions =
      predictions.In(s, labels.is_output() && IsFloating(labels.dtype()) ? labels.dtype() : DType::kFloat);
  pair.labels = Cast(s, labels.In(s, pair.predictions.dtype()), pair.predictions.dtype());
  if (s.ok()) s.UpdateStatus(CheckSameShape(s, pair.labels, pair.predictions));
  return pair;
}

}  // namespace

Output SparseSoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                                 const LossOptions& options) {
  const Scope s = scope.ForComposite("sparse_softmax_cross_entropy");
  Output x = logits.In(s), classes = labels.In(s, DType::kInt32);
  if (!s.ok()) return Output(s, Endpoint{});
  const PartialShape shape = x.shape();
  if (shape.known_rank() && shape.rank() > 1 && classes.shape().known_rank() &&
      classes.shape().rank() == shape.rank() && classes.shape().dim(shape.rank() - 1) == 1) {
    classes = Op(s, "Squeeze", {classes}, {{"squeeze_dims", std::vector<int64_t>{-1}}});
  }
  if (!shape.known_rank() || shape.rank() == 2) {
    return Result(s, Op(s, "SparseSoftmaxCrossEntropyWithLogits", {x, classes}), options);
  }
  if (shape.rank() < 2 || shape.dim(shape.rank() - 1) < 0 ||
      (classes.shape().known_rank() && classes.shape().rank() != shape.rank() - 1)) {
    return Failed(
        s, InvalidArgument("loss ", s.prefix(), ": logits of shape ", shape.ToString(),
                           " do not have a known number of classes for labels of shape ", classes.shape().ToString()));
  }
  const std::vector<int64_t> rows = {-1, shape.dim(shape.rank() - 1)};
  const Output flat = Op(s, "SparseSoftmaxCrossEntropyWithLogits",
                         {Op(s, "Reshape", {x, rows}), Op(s, "Reshape", {classes, std::vector<int64_t>{-1}})});
  return Result(s, Op(s, "Reshape", {flat, Op(s, "Shape", {classes})}), options);
}

Output SoftmaxCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options) {
  const Scope s = scope.ForComposite("softmax_cross_entropy");
  const Output x = logits.In(s);
  Output target = Cast(s, labels.In(s, x.dtype()), x.dtype());
  if (s.ok()) s.UpdateStatus(CheckSameShape(s, target, x));
  if (options.label_smoothing != 0) {
    if (x.shape().known_rank() && x.shape().rank() == 2 && x.shape().dim(1) > 0) {
      target = Op(s, "Mul", {target, 1 - options.label_smoothing}) +
               options.label_smoothing / static_cast<double>(x.shape().dim(1));
    } else {
      s.UpdateStatus(InvalidArgument("label smoothing in scope '", s.prefix(),
                                     "' needs to know the number of classes; the logits have shape ",
                                     x.shape().ToString()));
    }
  }
  return Result(s, Op(s, "SoftmaxCrossEntropyWithLogits", {x, target}), options);
}

Output SigmoidCrossEntropy(const Scope& scope, const Input& labels, const Input& logits,
                           const SoftmaxOptions& options) {
  const Scope s = scope.ForComposite("sigmoid_cross_entropy");
  Pair pair = InOneType(s, labels, logits);
  if (options.label_smoothing != 0) {
    pair.labels = Op(s, "Mul", {pair.labels, 1 - options.label_smoothing}) + 0.5 * options.label_smoothing;
  }
  // -z log(sigmoid(x)) - (1 - z) log(1 - sigmoid(x)), without overflow for large |x|.
  const Output& x = pair.predictions;
  return Result(s, Op(s, "Sub", {Op(s, "Softplus", {x}), Op(s, "Mul", {x, pair.labels})}), options);
}

Output MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions, const LossOptions& options) {
  const Scope s = scope.ForComposite("mean_squared_error");
  const Pair pair = InOneType(s, labels, predictions);
  return Result(s, Op(s, "SquaredDifference", {pair.predictions, pair.labels}), options);
}

Output AbsoluteDifference(const Scope& scope, const Input& labels, const Input& predictions,
                          const LossOptions& options) {
  const Scope s = scope.ForComposite("absolute_difference");
  const Pair pair = InOneType(s, labels, predictions);
  return Result(s, Op(s, "Abs", {Op(s, "Sub", {pair.predictions, pair.labels})}), options);
}

Output HuberLoss(const Scope& scope, const Input& labels, const Input& predictions, const HuberOptions& options) {
  const Scope s = scope.ForComposite("huber_loss");
  if (!(options.delta > 0)) {
    return Failed(s, InvalidArgument("loss ", s.prefix(), ": delta is ", options.delta, ", and must be positive"));
  }
  const Pair pair = InOneType(s, labels, predictions);
  const Output error = Op(s, "Abs", {Op(s, "Sub", {pair.predictions, pair.labels})});
  // Beyond delta only the linear part grows, and only it has a gradient.
  const Output quadratic = Op(s, "Minimum", {error, options.delta});
  return Result(s, Op(s, "Square", {quadratic}) * 0.5 + (error - quadratic) * options.delta, options);
}

Output HingeLoss(const Scope& scope, const Input& labels, const Input& logits, const LossOptions& options) {
  const Scope s = scope.ForComposite("hinge_loss");
  const Pair pair = InOneType(s, labels, logits);
  const Output signs = Op(s, "Mul", {pair.labels, 2}) - 1;
  return Result(s, Op(s, "Relu", {1 - signs * pair.predictions}), options);
}

Output LogLoss(const Scope& scope, const Input& labels, const Input& predictions, const LogLossOptions& options) {
  const Scope s = scope.ForComposite("log_loss");
  const Pair pair = InOneType(s, labels, predictions);
  const Output is = Op(s, "Log", {Op(s, "AddV2", {pair.predictions, options.epsilon})});
  const Output is_not = Op(s, "Log", {Op(s, "Sub", {1, pair.predictions}) + options.epsilon});
  return Result(s, -(is * pair.labels) - is_not * Op(s, "Sub", {1, pair.labels}), options);
}

Output CosineDistance(const Scope& scope, const Input& labels, const Input& predictions, int64_t axis,
                      const LossOptions& options) {
  const Scope s = scope.ForComposite("cosine_distance_loss");
  const Pair pair = InOneType(s, labels, predictions);
  const Output cosine =
      Op(s, "Sum", {Op(s, "Mul", {pair.predictions, pair.labels}), std::vector<int32_t>{static_cast<int32_t>(axis)}},
         {{"keep_dims", true}});
  return Result(s, 1 - cosine, options);
}

Output MeanPairwiseSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                                const PairwiseOptions& options) {
  const Scope s = scope.ForComposite("mean_pairwise_squared_error");
  const Pair pair = InOneType(s, labels, predictions);
  const Output error = Op(s, "Sub", {pair.predictions, pair.labels});
  if (!s.ok()) return error;
  if (error.shape().known_rank() && error.shape().rank() < 1)
    return Failed(s, InvalidArgument("loss ", s.prefix(), ": there is no dimension of examples"));
  const Output w = WeightsIn(s, options.weights.is_nothing() ? Input(1.0) : options.weights, error);
  const Output axes = Op(s, "Range", {1, Op(s, "Rank", {error}), 1});
  const auto of_example = [&](const Output& x) { return Op(s, "Sum", {x, axes}, {{"keep_dims", true}}); };
  const Output present = Cast(s, Op(s, "NotEqual", {w, 0}), error.dtype()) + Op(s, "ZerosLike", {error});
  const Output count = of_example(present);
  const Output others = Op(s, "Maximum", {count - 1, 0});
  const Output squares = Op(s, "DivNoNan", {of_example(Op(s, "Square", {error})), others});
  const Output square =
      Op(s, "DivNoNan", {Op(s, "Square", {of_example(error)}), Op(s, "Maximum", {count * (count - 1), 0})});
  const Output sum = SumAll(s, (squares - square) * 2 * w);
  const Output loss = Op(s.WithOpName("value"), "SelectV2", {SumAll(s, count) > 0, sum, Op(s, "ZerosLike", {sum})});
  if (options.add_to_losses) AddLoss(loss);
  return loss;
}

Output ComputeWeightedLoss(const Scope& scope, const Output& losses, const LossOptions& options) {
  return Result(scope.ForComposite("weighted_loss"), losses, options);
}

void AddLoss(const Output& loss) {
  if (!loss.empty()) StateOf(loss.scope()).losses.push_back({loss.endpoint(), ReplicaOf(loss.scope())});
}

std::vector<Output> GetLosses(const Scope& scope) {
  std::vector<Output> all;
  for (const api_internal::RecordedLoss& loss : StateOf(scope).losses) {
    if (loss.replica == ReplicaOf(scope)) all.emplace_back(scope.WithoutOpName(), loss.value);
  }
  return all;
}

std::vector<Output> GetRegularizationLosses(const Scope& scope) {
  std::vector<Output> all;
  for (const Endpoint& loss : StateOf(scope).regularization_losses) all.emplace_back(scope.WithoutOpName(), loss);
  return all;
}

Output GetTotalLoss(const Scope& scope, bool add_regularization_losses) {
  std::vector<Output> all = GetLosses(scope);
  if (add_regularization_losses) {
    const std::vector<Output> terms = GetRegularizationLosses(scope);
    all.insert(all.end(), terms.begin(), terms.end());
  }
  if (all.empty()) return Failed(scope, InvalidArgument("GetTotalLoss: the graph has no losses"));
  return Op(scope.op_name().empty() ? scope.WithOpName("total_loss") : scope, "AddN", {InputList(all)});
}

Output L2Regularization(const Scope& scope, const Input& x, double scale) {
  const Scope s = scope.ForComposite("l2_regularization");
  const Output loss = Op(s, "Mul", {Op(s, "L2Loss", {x}), scale});
  AddRegularizationLoss(loss);
  return loss;
}

Output RegularizationLoss(const Scope& scope) {
  const Scope s = scope.ForComposite("regularization_loss");
  Output sum;
  for (const Endpoint& loss : StateOf(s).regularization_losses) {
    sum = sum.empty() ? Output(s, loss) : sum + Output(s, loss);
  }
  return sum.empty() ? Input(0.0).In(s) : sum;
}

}  // namespace millrace::losses
