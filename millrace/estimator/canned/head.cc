#include "millrace/estimator/canned/head.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/lookup_table.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/estimator/feature_columns/column.h"
#include "millrace/saved_model/signature.h"

namespace millrace {
namespace {

using api_internal::Cast;
using api_internal::SumAll;

Status CheckWeightColumn(const std::optional<FeatureColumn>& column) {
  if (!column) return absl::OkStatus();
  MR_RETURN_IF_ERROR(column->status());
  if (column->column().width() == 1 && column->is_dense() && !column->is_categorical()) return absl::OkStatus();
  return InvalidArgument("weight_column: the feature column '", column->name(),
                         "' is not a numeric column of shape [1]");
}

// Fails a step with `what` unless `holds`, a bool for each element, is true for all. Returns `x` after that.
Output Require(const Scope& s, const std::string& what, const Output& holds, const Output& x) {
  const Output all = Op(s, "All", {holds, api_internal::AllAxes(s, holds)});
  const Operation check = AddOp(s, "Assert", {all, InputList{Input(what), x}}, {{"summarize", int64_t{10}}});
  return Op(check.empty() ? s : s.WithControlDependencies({check}), "Identity", {x});
}

// [batch, 1], or empty if there is no column.
Output WeightsOf(const Scope& s, const ModelArgs& args, const std::optional<FeatureColumn>& column) {
  if (!column) return Output();
  FeatureTensors features(args.features);
  const Output weights = column->column().Values({s, true}, features);
  if (!s.ok()) return weights;
  return Require(s, absl::StrCat("the weights ", column->name(), " must not be negative; they are"),
                 Op(s, "GreaterEqual", {weights, 0.0}), weights);
}

// The labels of a batch, [batch, dimension]; dimension 1 may be left out.
Output LabelsOf(const Scope& s, const ModelArgs& args, int64_t dimension) {
  const Output labels = args.label(s);
  if (!s.ok()) return labels;
  const PartialShape shape = labels.shape();
  if (shape.known_rank() && shape.rank() == 1 && dimension == 1) return Op(s, "ExpandDims", {labels, -1});
  if (shape.known_rank() && (shape.rank() != 2 || (shape.dim(1) >= 0 && shape.dim(1) != dimension))) {
    s.UpdateStatus(
        InvalidArgument("the labels have shape ", shape.ToString(), ", and must be [batch, ", dimension, "]"));
  }
  return labels;
}

// `losses` and `weights` (which may be empty) are [batch, dimension] and [batch, 1].
Output ReduceLosses(const Scope& s, const Output& losses, const Output& weights, LossReduction reduction) {
  const Output weighted = weights.empty() ? losses : losses * weights;
  const Output sum = SumAll(s, weighted);
  if (reduction == LossReduction::kSum) return sum;
  if (weights.empty() || reduction == LossReduction::kSumOverBatchSize)
    return Op(s, "DivNoNan", {sum, Cast(s, Op(s, "Size", {losses}), DType::kFloat)});
  const Output of_each = weights + Op(s, "ZerosLike", {losses});
  const Output count =
      reduction == LossReduction::kMean ? of_each : Cast(s, Op(s, "NotEqual", {of_each, 0.0}), DType::kFloat);
  return Op(s, "DivNoNan", {sum, SumAll(s, count)});
}

streaming::MetricOptions Weighted(const Output& weights) {
  return weights.empty() ? streaming::MetricOptions{} : streaming::MetricOptions{.weights = weights};
}

// The mean of values [batch, dimension] with weights [batch, 1].
streaming::Metric WeightedMean(const Scope& s, const Output& values, const Output& weights) {
  return streaming::Mean(s, Cast(s, values, DType::kFloat), Weighted(weights));
}

class ClassHead : public Head {
 public:
  explicit ClassHead(ClassifierOptions options) : options_(std::move(options)) {}

  int64_t logits_dimension() const override { return binary() ? 1 : options_.n_classes; }

  EstimatorSpec MakeSpec(const Scope& scope, const ModelArgs& args, const Output& logits) const override {
    const Scope s = scope.SubScope("head");
    EstimatorSpec spec{.predictions = PredictionsOf(s.SubScope("predictions"), logits)};
    if (!s.ok()) return spec;
    AddExports(&spec);
    if (args.mode == ModelMode::kPredict) return spec;
    const Output labels = LabelIds(s.SubScope("labels"), args);
    const Output weights = WeightsOf(s.SubScope("weights"), args, options_.weight_column);
    if (!s.ok()) return spec;
    const Output losses = LossesOf(s.SubScope("losses"), labels, logits);
    spec.loss = ReduceLosses(s.SubScope("loss"), losses, weights, options_.loss_reduction);
    if (args.mode == ModelMode::kEval) AddMetrics(s.SubScope("metrics"), labels, weights, losses, &spec);
    return spec;
  }

 private:
  bool binary() const { return options_.n_classes == 2; }

  OutputMap PredictionsOf(const Scope& s, const Output& logits) const {
    OutputMap p = {{"logits", logits}};
    Output all_logits = logits;
    if (binary()) {
      p["logistic"] = Op(s.WithOpName("logistic"), "Sigmoid", {logits});
      all_logits = Op(s, "ConcatV2", {InputList{Op(s, "ZerosLike", {logits}), logits}, 1});
    }
    p["probabilities"] = Op(s.WithOpName("probabilities"), "Softmax", {all_logits});
    const Output best = Op(s, "ArgMax", {all_logits, 1}, {{"output_type", DType::kInt64}});
    p["class_ids"] = Op(s.WithOpName("class_ids"), "ExpandDims", {best, -1});
    p["classes"] = NamesOf(s, p["class_ids"]);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < options_.n_classes; ++i) ids.push_back(i);
    const Output row = Input(Tensor::FromVector(ids).Reshaped({1, options_.n_classes}).value()).In(s);
    const Output batch = Op(s, "Slice", {Op(s, "Shape", {logits}), std::vector<int32_t>{0}, std::vector<int32_t>{1}});
    const Output times = Op(s, "ConcatV2", {InputList{batch, std::vector<int32_t>{1}}, 0});
    p["all_class_ids"] = Op(s.WithOpName("all_class_ids"), "Tile", {row, times});
    p["all_classes"] = Op(s.WithOpName("all_classes"), "Tile", {NamesOf(s, row), times});
    return p;
  }
  // The names of classes: those of the vocabulary, or their numbers.
  Output NamesOf(const Scope& s, const Output& ids) const {
    if (options_.label_vocabulary.empty()) return Op(s, "AsString", {ids});
    return Op(s, "GatherV2", {Input(options_.label_vocabulary), ids, 0});
  }

  static void AddExports(EstimatorSpec* spec) {
    const OutputMap& p = spec->predictions;
    const ExportOutput classify = ClassificationOutput(p.at("probabilities"), p.at("all_classes"));
    spec->export_outputs = {{kDefaultSignature, classify}, {"classification", classify}, {"predict", PredictOutput(p)}};
    if (p.contains("logistic")) spec->export_outputs["regression"] = RegressionOutput(p.at("logistic"));
  }

  // int64 [batch, 1].
  Output LabelIds(const Scope& s, const ModelArgs& args) const {
    Output labels = LabelsOf(s, args, 1);
    if (!s.ok()) return labels;
    const bool strings = labels.dtype() == DType::kString;
    if (strings == options_.label_vocabulary.empty()) {
      s.UpdateStatus(InvalidArgument("the labels have type ", labels.dtype(), ", and the classifier has ",
                                     strings ? "no label_vocabulary" : "a label_vocabulary of strings"));
      return labels;
    }
    if (strings) {
      const Output ids = IndexTableFromTensor(s, Tensor::FromVector(options_.label_vocabulary)).Lookup(s, labels);
      const Output known = Op(s, "GreaterEqual", {ids, Input(int64_t{0}).In(s, DType::kInt64)});
      const Output all = Op(s, "All", {known, std::vector<int32_t>{0, 1}});
      const Operation check =
          AddOp(s, "Assert", {all, InputList{Input("a label is not in label_vocabulary; the labels are"), labels}},
                {{"summarize", int64_t{10}}});
      return Op(check.empty() ? s : s.WithControlDependencies({check}), "Identity", {ids});
    }
    const Output ids = Cast(s, labels, DType::kInt64);
    const auto number = [&](int64_t n) { return Input(n).In(s, DType::kInt64); };
    const Output inside = Op(
        s, "LogicalAnd", {Op(s, "GreaterEqual", {ids, number(0)}), Op(s, "Less", {ids, number(options_.n_classes)})});
    return Require(s, absl::StrCat("labels must be in [0, ", options_.n_classes, "); they are"), inside, ids);
  }

  // [batch, 1].
  Output LossesOf(const Scope& s, const Output& labels, const Output& logits) const {
    if (binary()) {
      // softplus(x) - x z, without overflow for large |x|.
      return Op(s, "Sub", {Op(s, "Softplus", {logits}), Op(s, "Mul", {logits, Cast(s, labels, DType::kFloat)})});
    }
    const Output flat = Op(s, "Squeeze", {labels}, {{"squeeze_dims", std::vector<int64_t>{1}}});
    return Op(s, "ExpandDims", {Op(s, "SparseSoftmaxCrossEntropyWithLogits", {logits, flat}), -1});
  }

  void AddMetrics(const Scope& s, const Output& labels, const Output& weights, const Output& losses,
                  EstimatorSpec* spec) const {
    std::map<std::string, streaming::Metric>& metrics = spec->eval_metric_ops;
    const OutputMap& p = spec->predictions;
    const streaming::MetricOptions weighted = Weighted(weights);
    metrics["average_loss"] = WeightedMean(s.WithOpName("average_loss"), losses, weights);
    metrics["accuracy"] = streaming::Accuracy(s.WithOpName("accuracy"), labels, p.at("class_ids"), weighted);
    if (!binary()) return;
    const Output logistic = p.at("logistic");
    metrics["precision"] = streaming::Precision(s.WithOpName("precision"), labels, p.at("class_ids"), weighted);
    metrics["recall"] = streaming::Recall(s.WithOpName("recall"), labels, p.at("class_ids"), weighted);
    metrics["prediction/mean"] = WeightedMean(s.WithOpName("prediction_mean"), logistic, weights);
    metrics["label/mean"] = WeightedMean(s.WithOpName("label_mean"), labels, weights);
    // What the more frequent class alone would give. The same sums as those of the mean of the labels.
    streaming::Metric baseline = metrics["label/mean"];
    baseline.result = [mean = baseline.result](const Scope& scope, const std::vector<Output>& totals) {
      const Output value = mean(scope, totals);
      return Op(scope, "Maximum", {value, Op(scope, "Sub", {Input(1.0).In(scope, value.dtype()), value})});
    };
    const Output mean = baseline.value;
    baseline.value = Op(s.WithOpName("accuracy_baseline"), "Maximum", {mean, Op(s, "Sub", {1.0, mean})});
    metrics["accuracy_baseline"] = baseline;
    for (const auto& [name, curve] : {std::pair("auc", "ROC"), std::pair("auc_precision_recall", "PR")}) {
      streaming::AucOptions auc{.curve = curve};
      if (!weights.empty()) auc.weights = weights;
      metrics[name] = streaming::Auc(s.WithOpName(name), labels, logistic, auc);
    }
  }

  const ClassifierOptions options_;
};

class NumberHead : public Head {
 public:
  explicit NumberHead(RegressorOptions options) : options_(std::move(options)) {}

  int64_t logits_dimension() const override { return options_.label_dimension; }

  EstimatorSpec MakeSpec(const Scope& scope, const ModelArgs& args, const Output& logits) const override {
    const Scope s = scope.SubScope("head");
    EstimatorSpec spec{.predictions = {{"predictions", logits}}};
    const ExportOutput regress = RegressionOutput(logits);
    spec.export_outputs = {
        {kDefaultSignature, regress}, {"regression", regress}, {"predict", PredictOutput(spec.predictions)}};
    if (args.mode == ModelMode::kPredict) return spec;
    const Output given = LabelsOf(s.SubScope("labels"), args, options_.label_dimension);
    const Output weights = WeightsOf(s.SubScope("weights"), args, options_.weight_column);
    if (!s.ok()) return spec;
    if (given.dtype() == DType::kString) {
      s.UpdateStatus(InvalidArgument("the labels have type string, and a regressor's are numbers"));
      return spec;
    }
    const Output labels = Cast(s, given, DType::kFloat);
    const Output losses = Op(s.SubScope("losses"), "SquaredDifference", {logits, labels});
    spec.loss = ReduceLosses(s.SubScope("loss"), losses, weights, options_.loss_reduction);
    if (args.mode != ModelMode::kEval) return spec;
    const Scope m = s.SubScope("metrics");
    spec.eval_metric_ops["average_loss"] = WeightedMean(m.WithOpName("average_loss"), losses, weights);
    spec.eval_metric_ops["prediction/mean"] = WeightedMean(m.WithOpName("prediction_mean"), logits, weights);
    spec.eval_metric_ops["label/mean"] = WeightedMean(m.WithOpName("label_mean"), labels, weights);
    return spec;
  }

 private:
  const RegressorOptions options_;
};

}  // namespace

StatusOr<std::shared_ptr<const Head>> ClassifierHead(ClassifierOptions options) {
  if (options.n_classes < 2) return InvalidArgument("n_classes is ", options.n_classes, ", and must be at least 2");
  if (!options.label_vocabulary.empty() && static_cast<int64_t>(options.label_vocabulary.size()) != options.n_classes) {
    return InvalidArgument("label_vocabulary has ", options.label_vocabulary.size(), " labels, and n_classes is ",
                           options.n_classes);
  }
  MR_RETURN_IF_ERROR(CheckWeightColumn(options.weight_column));
  return std::shared_ptr<const Head>(new ClassHead(std::move(options)));
}

StatusOr<std::shared_ptr<const Head>> RegressorHead(RegressorOptions options) {
  if (options.label_dimension < 1)
    return InvalidArgument("label_dimension is ", options.label_dimension, ", and must be positive");
  MR_RETURN_IF_ERROR(CheckWeightColumn(options.weight_column));
  return std::shared_ptr<const Head>(new NumberHead(std::move(options)));
}

}  // namespace millrace
