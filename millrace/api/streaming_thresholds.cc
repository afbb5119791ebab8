// Streaming metrics of predictions that are compared with thresholds, and of the k best classes.
#include <cmath>

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/streaming_totals.h"

namespace millrace::streaming {
namespace {

using api_internal::Cast;
using api_internal::SumAll;

// At each threshold, [thresholds].
struct Outcomes {
  Output tp, fp, fn, tn;
};
using OutcomesFn = std::function<Output(const Scope& scope, const Outcomes& at)>;

// TensorFlow's: evenly in [0, 1], the first and the last just outside of it.
std::vector<float> EvenThresholds(int64_t n) {
  std::vector<float> thresholds;
  for (int64_t i = 0; i < n; ++i) thresholds.push_back(static_cast<float>(static_cast<double>(i) / (n - 1)));
  thresholds.front() = -1e-7f;
  thresholds.back() = 1.0f + 1e-7f;
  return thresholds;
}

Output Column(const Scope& s, const Output& x, int axis, int index) { return Op(s, "GatherV2", {x, index, axis}); }

// The sums are, for each threshold, how many positive and negative examples are above it, and how many of both there
// are.
Metric AtThresholds(const Scope& s, const Input& labels, const Input& predictions, const Input& weights,
                    const std::vector<float>& thresholds, OutcomesFn value) {
  if (thresholds.empty()) s.UpdateStatus(InvalidArgument("'", s.prefix(), "' has no thresholds"));
  if (!s.ok()) return {};
  const int64_t n = static_cast<int64_t>(thresholds.size());
  const Output scores = Op(s, "Reshape", {ToFloat(s, predictions.In(s)), std::vector<int32_t>{1, -1}});
  const Output label = Cast(s, labels.In(s), DType::kBool);
  const Output is = Flat(s, ToFloat(s, label));
  Output classes = Op(s, "Pack", {InputList{is, 1.0 - is}}, {{"axis", int64_t{1}}});
  if (!weights.is_nothing()) {
    const Output each = Flat(s, ToFloat(s, Weigh(s, label, weights).weights));
    classes = classes * Op(s, "ExpandDims", {each, 1});
  }
  const Output limits =
      Op(s, "Reshape", {Input(thresholds).In(s, DType::kFloat, "thresholds"), std::vector<int32_t>{-1, 1}});
  const Output above = ToDouble(s, Op(s, "MatMul", {ToFloat(s, Op(s, "Greater", {scores, limits})), classes}));
  const Output all = ToDouble(s, Op(s, "Sum", {classes, std::vector<int32_t>{0}}));
  return Accumulate(s, {{"above", {n, 2}, above}, {"all", {2}, all}},
                    [value = std::move(value)](const Scope& in, const std::vector<Output>& t) {
                      const Scope inner = in.WithoutOpName();
                      Outcomes at;
                      at.tp = Column(inner, t[0], 1, 0);
                      at.fp = Column(inner, t[0], 1, 1);
                      at.fn = Column(inner, t[1], 0, 0) - at.tp;
                      at.tn = Column(inner, t[1], 0, 1) - at.fp;
                      return ToFloat(in, value(inner, at));
                    });
}

Metric AtGiven(const Scope& scope, const char* name, const Input& labels, const Input& predictions,
               const std::vector<float>& thresholds, const MetricOptions& options, OutcomesFn value) {
  return AtThresholds(scope.ForComposite(name), labels, predictions, options.weights, thresholds, std::move(value));
}

// All but the last, and all but the first, of [n].
Output Front(const Scope& s, const Output& x, int64_t n) {
  return Op(s, "Slice", {x, std::vector<int64_t>{0}, std::vector<int64_t>{n - 1}});
}
Output Back(const Scope& s, const Output& x, int64_t n) {
  return Op(s, "Slice", {x, std::vector<int64_t>{1}, std::vector<int64_t>{n - 1}});
}
Output SumOf(const Scope& s, const Output& x) { return Op(s, "Sum", {x, std::vector<int32_t>{0}}); }
Output MaxOf(const Scope& s, const Output& a, const Input& b) { return Op(s, "Maximum", {a, b}); }

// Between two thresholds the true positives grow linearly with the predicted ones (Davis and Goadrich).
Output InterpolatedPrArea(const Scope& s, const Outcomes& at, int64_t n) {
  const Output p = at.tp + at.fp;
  const Output p0 = Front(s, p, n), p1 = Back(s, p, n), tp1 = Back(s, at.tp, n);
  const Output dtp = Front(s, at.tp, n) - tp1;
  const Output slope = Ratio(s, dtp, MaxOf(s, p0 - p1, 0));
  const Output intercept = tp1 - slope * p1;
  const Output both = Op(s, "LogicalAnd", {p0 > 0, p1 > 0});
  const Output ratio = Op(s, "SelectV2", {both, Ratio(s, p0, MaxOf(s, p1, 0)), Op(s, "OnesLike", {p1})});
  return SumOf(s, Ratio(s, slope * (dtp + intercept * Op(s, "Log", {ratio})), MaxOf(s, tp1 + Back(s, at.fn, n), 0)));
}

Output Area(const Scope& s, const Outcomes& at, int64_t n, bool pr, const std::string& method) {
  constexpr double kSmall = 1e-6;
  if (pr && method == "careful_interpolation") return InterpolatedPrArea(s, at, n);
  const Output recall = (at.tp + kSmall) / (at.tp + at.fn + kSmall);
  const Output x = pr ? recall : at.fp / (at.fp + at.tn + kSmall);
  const Output y = pr ? (at.tp + kSmall) / (at.tp + at.fp + kSmall) : recall;
  const Output y0 = Front(s, y, n), y1 = Back(s, y, n);
  Output height = (y0 + y1) / 2.0;
  if (method == "minoring") height = Op(s, "Minimum", {y0, y1});
  if (method == "majoring") height = Op(s, "Maximum", {y0, y1});
  return SumOf(s, (Front(s, x, n) - Back(s, x, n)) * height);
}

bool CheckNumThresholds(const Scope& s, int64_t n) {
  if (n < 2) s.UpdateStatus(InvalidArgument("'", s.prefix(), "': num_thresholds is ", n, ", and must be 2 or more"));
  return s.ok();
}

constexpr double kTiny = 1e-7;

// The labels that each example has and the classes that were predicted for it.
struct TopK {
  Output found;      // double [batch, k]: whether the class predicted at rank i is a label
  Output relevant;   // double [batch]: the number of labels
  Output predicted;  // double [batch]: the number of predicted classes
};

Output BestClasses(const Scope& s, const Input& predictions, int64_t k) {
  if (k < 1) s.UpdateStatus(InvalidArgument("'", s.prefix(), "': k is ", k));
  if (!s.ok()) return Output();
  return Cast(s, AddOp(s, "TopKV2", {predictions, k}).output(1), DType::kInt64);
}

TopK Compare(const Scope& s, const Input& labels, const Output& top, int64_t class_id) {
  Output label = Cast(s, labels.In(s, DType::kInt64), DType::kInt64);
  if (s.ok() && label.shape().known_rank() && label.shape().rank() == 1) label = Op(s, "ExpandDims", {label, 1});
  if (s.ok() && (!label.shape().known_rank() || label.shape().rank() != 2)) {
    s.UpdateStatus(InvalidArgument("'", s.prefix(), "': labels have shape ", label.shape().ToString(),
                                   ", not [batch] or [batch, labels]"));
  }
  if (!s.ok()) return {};
  const Output same = Op(s, "Equal", {Op(s, "ExpandDims", {top, 2}), Op(s, "ExpandDims", {label, 1})});
  const auto counted = [&](const Output& classes) {
    return ToDouble(s, class_id < 0 ? Op(s, "OnesLike", {classes}) : Op(s, "Equal", {classes, class_id}));
  };
  const Output which = counted(top);
  const Output found = ToDouble(s, Op(s, "Any", {same, std::vector<int32_t>{2}})) * which;
  return {found, Op(s, "Sum", {counted(label), std::vector<int32_t>{1}}),
          Op(s, "Sum", {which, std::vector<int32_t>{1}})};
}

Metric FoundOf(const Scope& s, const Output& found, const Output& of, const Input& weights) {
  if (!s.ok()) return {};
  const Output each = Op(s, "Sum", {found, std::vector<int32_t>{1}});
  return Accumulate(s,
                    {{"true_positives", {}, SumAll(s, Weigh(s, each, weights).values)},
                     {"all", {}, SumAll(s, Weigh(s, of, weights).values)}},
                    [](const Scope& in, const std::vector<Output>& t) { return ToFloat(in, Ratio(in, t[0], t[1])); });
}

}  // namespace

Metric TruePositivesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                 const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "true_positives", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.tp; });
}
Metric TrueNegativesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                 const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "true_negatives", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.tn; });
}
Metric FalsePositivesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                  const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "false_positives", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.fp; });
}
Metric FalseNegativesAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                                  const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "false_negatives", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.fn; });
}
Metric PrecisionAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                             const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "precision_at_thresholds", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.tp / (at.tp + at.fp + kTiny); });
}
Metric RecallAtThresholds(const Scope& scope, const Input& labels, const Input& predictions,
                          const std::vector<float>& thresholds, const MetricOptions& options) {
  return AtGiven(scope, "recall_at_thresholds", labels, predictions, thresholds, options,
                 [](const Scope&, const Outcomes& at) { return at.tp / (at.tp + at.fn + kTiny); });
}

Metric Auc(const Scope& scope, const Input& labels, const Input& predictions, const AucOptions& options) {
  const Scope s = scope.ForComposite("auc");
  const bool pr = options.curve == "PR";
  const std::string& method = options.summation_method;
  if (!pr && options.curve != "ROC") {
    s.UpdateStatus(InvalidArgument("'", s.prefix(), "': curve is '", options.curve, "', not ROC or PR"));
  }
  if (method != "trapezoidal" && method != "minoring" && method != "majoring" && method != "careful_interpolation") {
    s.UpdateStatus(InvalidArgument("'", s.prefix(), "': summation_method is '", method,
                                   "', not trapezoidal, minoring, majoring or careful_interpolation"));
  }
  if (!CheckNumThresholds(s, options.num_thresholds)) return {};
  return AtThresholds(s, labels, predictions, options.weights, EvenThresholds(options.num_thresholds),
                      [pr, method, n = options.num_thresholds](const Scope& in, const Outcomes& at) {
                        return Area(in, at, n, pr, method);
                      });
}

Metric SensitivityAtSpecificity(const Scope& scope, const Input& labels, const Input& predictions, double specificity,
                                const OperatingPointOptions& options) {
  const Scope s = scope.ForComposite("sensitivity_at_specificity");
  if (!CheckNumThresholds(s, options.num_thresholds)) return {};
  const auto value = [specificity](const Scope& in, const Outcomes& at) {
    const Output off = Op(in, "Abs", {at.tn / (at.tn + at.fp + kTiny) - specificity});
    return Op(in, "GatherV2", {at.tp / (at.tp + at.fn + kTiny), Op(in, "ArgMin", {off, 0}), 0});
  };
  return AtThresholds(s, labels, predictions, options.weights, EvenThresholds(options.num_thresholds), value);
}

Metric SpecificityAtSensitivity(const Scope& scope, const Input& labels, const Input& predictions, double sensitivity,
                                const OperatingPointOptions& options) {
  const Scope s = scope.ForComposite("specificity_at_sensitivity");
  if (!CheckNumThresholds(s, options.num_thresholds)) return {};
  const auto value = [sensitivity, n = options.num_thresholds](const Scope& in, const Outcomes& at) {
    const Output off = Op(in, "Abs", {at.tp / (at.tp + at.fn + kTiny) - sensitivity});
    // The last of the nearest, whose specificity is the highest.
    const Output last = Op(in, "ArgMin", {Op(in, "ReverseV2", {off, std::vector<int32_t>{0}}), 0});
    return Op(in, "GatherV2", {at.tn / (at.tn + at.fp + kTiny), (n - 1) - last, 0});
  };
  return AtThresholds(s, labels, predictions, options.weights, EvenThresholds(options.num_thresholds), value);
}

Metric RecallAtTopK(const Scope& scope, const Input& labels, const Input& top_classes, const TopKOptions& options) {
  const Scope s = scope.ForComposite("recall_at_top_k");
  const TopK top = Compare(s, labels, Cast(s, top_classes.In(s, DType::kInt64), DType::kInt64), options.class_id);
  return FoundOf(s, top.found, top.relevant, options.weights);
}

Metric PrecisionAtTopK(const Scope& scope, const Input& labels, const Input& top_classes, const TopKOptions& options) {
  const Scope s = scope.ForComposite("precision_at_top_k");
  const TopK top = Compare(s, labels, Cast(s, top_classes.In(s, DType::kInt64), DType::kInt64), options.class_id);
  return FoundOf(s, top.found, top.predicted, options.weights);
}

Metric RecallAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                 const TopKOptions& options) {
  const Scope s = scope.ForComposite("recall_at_k");
  const TopK top = Compare(s, labels, BestClasses(s, predictions, k), options.class_id);
  return FoundOf(s, top.found, top.relevant, options.weights);
}

Metric PrecisionAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                    const TopKOptions& options) {
  const Scope s = scope.ForComposite("precision_at_k");
  const TopK top = Compare(s, labels, BestClasses(s, predictions, k), options.class_id);
  return FoundOf(s, top.found, top.predicted, options.weights);
}

Metric AveragePrecisionAtK(const Scope& scope, const Input& labels, const Input& predictions, int64_t k,
                           const MetricOptions& options) {
  const Scope s = scope.ForComposite("average_precision_at_k");
  const TopK top = Compare(s, labels, BestClasses(s, predictions, k), -1);
  if (!s.ok()) return {};
  const auto sum_to = [&](const Output& x) { return Op(s, "Cumsum", {x, 1}); };
  const Output precision = sum_to(top.found) / sum_to(Op(s, "OnesLike", {top.found}));
  const Output sum = Op(s, "Sum", {precision * top.found, std::vector<int32_t>{1}});
  const Output most = Op(s, "Minimum", {top.relevant, static_cast<double>(k)});
  return MeanOfValues(s, Ratio(s, sum, most), options.weights);
}

}  // namespace millrace::streaming
