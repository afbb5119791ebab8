#include "millrace/api/streaming_metrics.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/streaming_totals.h"

namespace millrace::streaming {

using api_internal::Cast;
using api_internal::SumAll;

Metric Accumulate(const Scope& s, const std::vector<Total>& totals, ResultFn result) {
  Metric metric;
  std::vector<Operation> updates;
  std::vector<Output> values;
  for (const Total& total : totals) {
    const Var variable(s, total.name, total.shape, init::Zeros(),
                       {.dtype = DType::kDouble,
                        .trainable = false,
                        .local = true,
                        .aggregation = VariableAggregation::kSum,
                        .synchronization = VariableSynchronization::kOnRead});
    if (!s.ok()) return {};
    updates.push_back(variable.AssignAdd(s, total.of_batch));
    values.push_back(variable.Read(s));
    metric.totals.push_back(variable);
  }
  metric.update = Group(s.WithOpName("update_op"), updates);
  metric.value = result(s.WithOpName("value"), values);
  metric.result = std::move(result);
  return s.ok() ? metric : Metric();
}

Output ToDouble(const Scope& s, const Output& x) { return Cast(s, x, DType::kDouble); }
Output ToFloat(const Scope& s, const Output& x) { return Cast(s, x, DType::kFloat); }
Output Ratio(const Scope& s, const Output& a, const Output& b) { return Op(s, "DivNoNan", {a, b}); }
Output Flat(const Scope& s, const Output& x) { return Op(s, "Reshape", {x, std::vector<int32_t>{-1}}); }

Weighted Weigh(const Scope& s, const Output& values, const Input& weights) {
  const Output each = ToDouble(s, values);
  const Output ones = Op(s, "OnesLike", {each});
  if (weights.is_nothing()) return {each, ones};
  const Output w = ToDouble(s, weights.In(s, DType::kDouble, "weights")) * ones;
  return {each * w, w};
}

Metric MeanOfValues(const Scope& s, const Output& values, const Input& weights) {
  const Weighted weighted = Weigh(s, values, weights);
  return Accumulate(s, {{"total", {}, SumAll(s, weighted.values)}, {"count", {}, SumAll(s, weighted.weights)}},
                    [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, Ratio(in, t[0], t[1])); });
}

namespace {

// The weighted number of examples for which `counts` is true.
Metric CountOf(const Scope& s, const Output& counts, const Input& weights) {
  return Accumulate(s, {{"count", {}, SumAll(s, Weigh(s, counts, weights).values)}},
                    [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, t[0]); });
}

struct TwoClasses {
  Output is;         // labels as bools
  Output predicted;  // predictions as bools
};
TwoClasses AsBools(const Scope& s, const Input& labels, const Input& predictions) {
  return {Cast(s, labels.In(s), DType::kBool), Cast(s, predictions.In(s), DType::kBool)};
}
Output Both(const Scope& s, const Output& a, const Output& b) { return Op(s, "LogicalAnd", {a, b}); }
Output NotOf(const Scope& s, const Output& a) { return Op(s, "LogicalNot", {a}); }

// The weighted true positives divided by all `of` which are a part of.
Metric TruePositivesOf(const Scope& s, const TwoClasses& classes, const Output& of, const Input& weights) {
  const Output found = Both(s, classes.is, classes.predicted);
  return Accumulate(s,
                    {{"true_positives", {}, SumAll(s, Weigh(s, found, weights).values)},
                     {"all", {}, SumAll(s, Weigh(s, of, weights).values)}},
                    [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, Ratio(in, t[0], t[1])); });
}

// The classes as int64 [n]. A step fails if one is out of range.
Output Classes(const Scope& s, const char* what, const Input& classes, int64_t num_classes) {
  const Output flat = Flat(s, Cast(s, classes.In(s, DType::kInt64), DType::kInt64));
  const Output inside = Op(s, "LogicalAnd", {flat >= int64_t{0}, flat < num_classes});
  const Operation check =
      AddOp(s, "Assert",
            {Op(s, "All", {inside, std::vector<int32_t>{0}}),
             InputList{Input(absl::StrCat(what, " must be from 0 to ", num_classes - 1, "; they are")), flat}});
  return s.ok() ? Op(s.WithControlDependencies({check}), "Identity", {flat}) : Output();
}

// [classes * classes], by label and prediction.
Output ConfusionOfBatch(const Scope& s, const Input& labels, const Input& predictions, int64_t n,
                        const Input& weights) {
  const Output label = Classes(s, "labels", labels, n);
  const Output predicted = Classes(s, "predictions", predictions, n);
  if (!s.ok()) return Output();
  const Output each = Weigh(s, Op(s, "OnesLike", {label}),
                            weights.is_nothing() ? Input() : Input(Flat(s, weights.In(s, DType::kDouble, "weights"))))
                          .values;
  return Op(s, "UnsortedSegmentSum", {each, label * n + predicted, n * n});
}

Metric OfConfusion(const Scope& s, const Input& labels, const Input& predictions, int64_t n, const Input& weights,
                   ResultFn result) {
  if (n < 1) s.UpdateStatus(InvalidArgument("'", s.prefix(), "': num_classes is ", n));
  if (!s.ok()) return {};
  const Output counts =
      Op(s, "Reshape", {ConfusionOfBatch(s, labels, predictions, n, weights), std::vector<int64_t>{n, n}});
  return Accumulate(s, {{"confusion_matrix", {n, n}, counts}}, std::move(result));
}

Output Diagonal(const Scope& s, const Output& matrix) { return Op(s, "MatrixDiagPart", {matrix}); }
Output SumAlong(const Scope& s, const Output& x, int axis) { return Op(s, "Sum", {x, std::vector<int32_t>{axis}}); }

}  // namespace

Metric Mean(const Scope& scope, const Input& values, const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean");
  return MeanOfValues(s, values.In(s), options.weights);
}

Metric MeanTensor(const Scope& scope, const Input& values, const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean_tensor");
  const Output x = values.In(s);
  if (s.ok() && !x.shape().IsFullyDefined()) {
    s.UpdateStatus(InvalidArgument("'", s.prefix(), "' needs values of a known shape, not ", x.shape().ToString()));
  }
  if (!s.ok()) return {};
  const Shape shape = x.shape().AsShape();
  const Weighted weighted = Weigh(s, x, options.weights);
  return Accumulate(s, {{"total_tensor", shape, weighted.values}, {"count_tensor", shape, weighted.weights}},
                    [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, Ratio(in, t[0], t[1])); });
}

Metric Accuracy(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("accuracy");
  const Output predicted = predictions.In(s);
  const Output right = Op(s, "Equal", {predicted, Cast(s, labels.In(s, predicted.dtype()), predicted.dtype())});
  return MeanOfValues(s, right, options.weights);
}

Metric InTopK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
              const MetricOptions& options) {
  const Scope s = scope.ForComposite("in_top_k");
  const Output targets = Cast(s, labels.In(s, DType::kInt64), DType::kInt64);
  return MeanOfValues(s, Op(s, "InTopKV2", {ToFloat(s, predictions.In(s)), targets, k}), options.weights);
}

Metric PercentageBelow(const Scope& scope, const Input& values, double threshold, const MetricOptions& options) {
  const Scope s = scope.ForComposite("percentage_below_threshold");
  return MeanOfValues(s, Op(s, "Less", {values, threshold}), options.weights);
}

Metric MeanAbsoluteError(const Scope& scope, const Input& labels, const Input& predictions,
                         const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean_absolute_error");
  return MeanOfValues(s, Op(s, "Abs", {Op(s, "Sub", {predictions, labels})}), options.weights);
}

Metric MeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                        const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean_squared_error");
  return MeanOfValues(s, Op(s, "SquaredDifference", {predictions, labels}), options.weights);
}

Metric RootMeanSquaredError(const Scope& scope, const Input& labels, const Input& predictions,
                            const MetricOptions& options) {
  const Scope s = scope.ForComposite("root_mean_squared_error");
  const Weighted weighted = Weigh(s, Op(s, "SquaredDifference", {predictions, labels}), options.weights);
  return Accumulate(s, {{"total", {}, SumAll(s, weighted.values)}, {"count", {}, SumAll(s, weighted.weights)}},
                    [](const Scope& in, const std::vector<Output>& t) {
                      return ToFloat(in, Op(in, "Sqrt", {Ratio(in, t[0], t[1])}));
                    });
}

Metric MeanRelativeError(const Scope& scope, const Input& labels, const Input& predictions, const Input& normalizer,
                         const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean_relative_error");
  const Output error = ToDouble(s, Op(s, "Abs", {Op(s, "Sub", {predictions, labels})}));
  return MeanOfValues(s, Ratio(s, error, ToDouble(s, normalizer.In(s))), options.weights);
}

Metric MeanCosineDistance(const Scope& scope, const Input& labels, const Input& predictions, int dim,
                          const MetricOptions& options) {
  const Scope s = scope.ForComposite("mean_cosine_distance");
  const Output product =
      Op(s, "Sum", {Op(s, "Mul", {predictions, labels}), std::vector<int32_t>{dim}}, {{"keep_dims", true}});
  const Weighted weighted = Weigh(s, product, options.weights);
  // 1 - mean is also what TensorFlow returns for nothing.
  return Accumulate(
      s, {{"total", {}, SumAll(s, weighted.values)}, {"count", {}, SumAll(s, weighted.weights)}},
      [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, 1.0 - Ratio(in, t[0], t[1])); });
}

Metric TruePositives(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("true_positives");
  const TwoClasses c = AsBools(s, labels, predictions);
  return CountOf(s, Both(s, c.is, c.predicted), options.weights);
}

Metric TrueNegatives(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("true_negatives");
  const TwoClasses c = AsBools(s, labels, predictions);
  return CountOf(s, NotOf(s, Op(s, "LogicalOr", {c.is, c.predicted})), options.weights);
}

Metric FalsePositives(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("false_positives");
  const TwoClasses c = AsBools(s, labels, predictions);
  return CountOf(s, Both(s, NotOf(s, c.is), c.predicted), options.weights);
}

Metric FalseNegatives(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("false_negatives");
  const TwoClasses c = AsBools(s, labels, predictions);
  return CountOf(s, Both(s, c.is, NotOf(s, c.predicted)), options.weights);
}

Metric Precision(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("precision");
  const TwoClasses c = AsBools(s, labels, predictions);
  return TruePositivesOf(s, c, c.predicted, options.weights);
}

Metric Recall(const Scope& scope, const Input& labels, const Input& predictions, const MetricOptions& options) {
  const Scope s = scope.ForComposite("recall");
  const TwoClasses c = AsBools(s, labels, predictions);
  return TruePositivesOf(s, c, c.is, options.weights);
}

Metric ConfusionMatrix(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
                       const MetricOptions& options) {
  return OfConfusion(scope.ForComposite("confusion_matrix"), labels, predictions, num_classes, options.weights,
                     [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, t[0]); });
}

Metric MeanPerClassAccuracy(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
                            const MetricOptions& options) {
  const auto result = [](const Scope& in, const std::vector<Output>& t) {
    const Output accuracy = Ratio(in, Diagonal(in, t[0]), SumAlong(in, t[0], 1));
    return ToFloat(in, Op(in, "Mean", {accuracy, std::vector<int32_t>{0}}));
  };
  return OfConfusion(scope.ForComposite("mean_accuracy"), labels, predictions, num_classes, options.weights, result);
}

Metric MeanIou(const Scope& scope, const Input& labels, const Input& predictions, int64_t num_classes,
               const MetricOptions& options) {
  const auto result = [](const Scope& in, const std::vector<Output>& t) {
    const Output both = Diagonal(in, t[0]);
    const Output either = SumAlong(in, t[0], 0) + SumAlong(in, t[0], 1) - both;
    const Output occurred = ToDouble(in, Op(in, "NotEqual", {either, 0}));
    return ToFloat(in, Ratio(in, SumAlong(in, Ratio(in, both, either), 0), SumAlong(in, occurred, 0)));
  };
  return OfConfusion(scope.ForComposite("mean_iou"), labels, predictions, num_classes, options.weights, result);
}

}  // namespace millrace::streaming
