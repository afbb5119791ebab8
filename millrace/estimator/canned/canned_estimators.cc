#include "millrace/estimator/canned/canned_estimators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/variable_creation.h"
#include "millrace/estimator/feature_columns/input_layer.h"

namespace millrace {
namespace {

// TensorFlow's defaults.
constexpr double kDnnRate = 0.05, kDnnRateBesideLinear = 0.001;
constexpr double kLinearRate = 0.2, kLinearRateBesideDnn = 0.005;
constexpr double kBaselineRate = 0.3;
constexpr int64_t kMinTablePart = int64_t{64} << 20;

std::shared_ptr<Optimizer> DnnOptimizer(const Scope& scope, const DNNOptions& dnn, double rate) {
  if (dnn.optimizer != nullptr) return dnn.optimizer(scope);
  return std::make_shared<optimizers::Adagrad>(optimizers::AdagradOptions{.learning_rate = rate});
}
std::shared_ptr<Optimizer> LinearOptimizer(const Scope& scope, const LinearOptions& linear, double max_rate) {
  if (linear.optimizer != nullptr) return linear.optimizer(scope);
  const double rate = std::min(max_rate, 1 / std::sqrt(static_cast<double>(linear.columns.size())));
  return std::make_shared<optimizers::Ftrl>(optimizers::FtrlOptions{.learning_rate = rate});
}

// With fewer than two parameter servers everything stays whole.
Scope Partitioned(const Scope& scope, const ModelArgs& args, const Partitioner& given, int64_t min_part_bytes) {
  if (given != nullptr) return scope.WithPartitioner(given);
  const int servers = args.config.num_ps_replicas();
  if (servers < 2) return scope;
  return scope.WithPartitioner(MinMaxPartitioner({.max_parts = servers, .min_part_bytes = min_part_bytes}));
}

Output DnnLogits(const Scope& scope, const ModelArgs& args, FeatureTensors& features, const DNNOptions& dnn,
                 int64_t units) {
  const Scope whole = scope.VariableScope("dnn");
  const Scope s = Partitioned(whole, args, nullptr, MinMaxOptions().min_part_bytes);
  Output net = InputLayer(
      Partitioned(whole.VariableScope("input_from_feature_columns"), args, dnn.input_layer_partitioner, kMinTablePart),
      features, dnn.columns);
  for (size_t i = 0; i < dnn.hidden_units.size(); ++i) {
    const std::string name = absl::StrCat("hiddenlayer_", i);
    net = layers::Dense(s.WithOpName(name), net, dnn.hidden_units[i],
                        {.activation = dnn.activation != nullptr
                                           ? dnn.activation
                                           : [](const Scope& relu, const Input& x) { return Op(relu, "Relu", {x}); }});
    if (dnn.dropout && args.training()) net = layers::Dropout(s.WithOpName(name + "_dropout"), net, *dnn.dropout, true);
    if (dnn.batch_norm) {
      net = layers::BatchNorm(s.VariableScope(name, Reuse::kAuto).WithOpName(absl::StrCat("batchnorm_", i)), net,
                              args.training(), {.momentum = 0.999});
    }
    if (!s.ok()) return net;
  }
  return layers::Dense(s.WithOpName("logits"), net, units);
}

Output LinearLogits(const Scope& scope, const ModelArgs& args, FeatureTensors& features, const LinearOptions& linear,
                    int64_t units) {
  const Scope s = Partitioned(scope.VariableScope("linear"), args, linear.partitioner, kMinTablePart);
  return LinearModel(s, features, linear.columns, {.units = units, .sparse_combiner = linear.sparse_combiner});
}

Status CheckColumns(const char* what, const std::vector<FeatureColumn>& columns) {
  if (columns.empty()) return InvalidArgument("the ", what, " has no feature columns");
  for (const FeatureColumn& column : columns) MR_RETURN_IF_ERROR(column.status());
  return absl::OkStatus();
}
Status CheckDnn(const DNNOptions& dnn) {
  MR_RETURN_IF_ERROR(CheckColumns("network", dnn.columns));
  if (dnn.hidden_units.empty()) return InvalidArgument("hidden_units is empty: the network has no layers");
  for (const int64_t units : dnn.hidden_units) {
    if (units < 1) return InvalidArgument("hidden_units has a layer of ", units, " units");
  }
  if (dnn.dropout && !(*dnn.dropout >= 0 && *dnn.dropout < 1))
    return InvalidArgument("dropout is ", *dnn.dropout, ", and must be in [0, 1)");
  for (const FeatureColumn& column : dnn.columns) {
    if (!column.is_dense())
      return InvalidArgument("feature column '", column.name(),
                             "' is not dense: a network needs Embedding or Indicator around it");
  }
  return absl::OkStatus();
}
Status CheckHead(const std::shared_ptr<const Head>& head) {
  return head == nullptr ? InvalidArgument("the Estimator has no head") : absl::OkStatus();
}

}  // namespace

StatusOr<Estimator> DNNEstimator(RunConfig config, DNNOptions dnn, std::shared_ptr<const Head> head,
                                 EstimatorOptions options) {
  MR_RETURN_IF_ERROR(CheckHead(head));
  MR_RETURN_IF_ERROR(CheckDnn(dnn));
  const ModelFn model = [dnn = std::move(dnn), head = std::move(head)](const Scope& scope, const ModelArgs& args) {
    const std::shared_ptr<FeatureTensors> features = MakeFeatureTensors(args.features);
    const Output logits = DnnLogits(scope, args, *features, dnn, head->logits_dimension());
    if (!scope.ok()) return EstimatorSpec();
    EstimatorSpec spec = head->MakeSpec(scope, args, logits);
    if (args.training()) spec.optimizer = DnnOptimizer(scope, dnn, kDnnRate);
    return spec;
  };
  return Estimator::Create(model, std::move(config), std::move(options));
}

StatusOr<Estimator> LinearEstimator(RunConfig config, LinearOptions linear, std::shared_ptr<const Head> head,
                                    EstimatorOptions options) {
  MR_RETURN_IF_ERROR(CheckHead(head));
  MR_RETURN_IF_ERROR(CheckColumns("linear model", linear.columns));
  const ModelFn model = [linear = std::move(linear), head = std::move(head)](const Scope& scope,
                                                                             const ModelArgs& args) {
    const std::shared_ptr<FeatureTensors> features = MakeFeatureTensors(args.features);
    const Output logits = LinearLogits(scope, args, *features, linear, head->logits_dimension());
    if (!scope.ok()) return EstimatorSpec();
    EstimatorSpec spec = head->MakeSpec(scope, args, logits);
    if (args.training()) spec.optimizer = LinearOptimizer(scope, linear, kLinearRate);
    return spec;
  };
  return Estimator::Create(model, std::move(config), std::move(options));
}

StatusOr<Estimator> DNNLinearCombinedEstimator(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                               std::shared_ptr<const Head> head, EstimatorOptions options) {
  MR_RETURN_IF_ERROR(CheckHead(head));
  if (linear.columns.empty() && dnn.columns.empty())
    return InvalidArgument("neither the linear model nor the network has feature columns");
  if (!dnn.columns.empty()) MR_RETURN_IF_ERROR(CheckDnn(dnn));
  if (!linear.columns.empty()) MR_RETURN_IF_ERROR(CheckColumns("linear model", linear.columns));
  const ModelFn model = [linear = std::move(linear), dnn = std::move(dnn), head = std::move(head)](
                            const Scope& scope, const ModelArgs& args) {
    const std::shared_ptr<FeatureTensors> features = MakeFeatureTensors(args.features);
    const int64_t units = head->logits_dimension();
    Output logits;
    if (!dnn.columns.empty()) logits = DnnLogits(scope, args, *features, dnn, units);
    if (!linear.columns.empty()) {
      const Output wide = LinearLogits(scope, args, *features, linear, units);
      logits = logits.empty() ? wide : Op(scope.WithOpName("logits"), "AddV2", {logits, wide});
    }
    if (!scope.ok()) return EstimatorSpec();
    EstimatorSpec spec = head->MakeSpec(scope, args, logits);
    if (!args.training()) return spec;
    std::vector<std::pair<std::string, std::shared_ptr<Optimizer>>> both;
    if (!dnn.columns.empty()) both.emplace_back("dnn/", DnnOptimizer(scope, dnn, kDnnRateBesideLinear));
    if (!linear.columns.empty()) both.emplace_back("linear/", LinearOptimizer(scope, linear, kLinearRateBesideDnn));
    spec.optimizer = Optimizer::ByPrefix(std::move(both));
    return spec;
  };
  return Estimator::Create(model, std::move(config), std::move(options));
}

StatusOr<Estimator> BaselineEstimator(RunConfig config, std::shared_ptr<const Head> head, BaselineOptions baseline,
                                      EstimatorOptions options) {
  MR_RETURN_IF_ERROR(CheckHead(head));
  const ModelFn model = [baseline = std::move(baseline), head = std::move(head)](const Scope& scope,
                                                                                 const ModelArgs& args) {
    if (args.features.empty()) {
      scope.UpdateStatus(InvalidArgument("the input has no features, which say how many examples there are"));
      return EstimatorSpec();
    }
    const Scope s = scope.VariableScope("baseline");
    const Var bias(s, "bias", Shape({head->logits_dimension()}), init::Zeros());
    const Output batch =
        Op(s, "Slice",
           {Op(s, "Shape", {args.features.begin()->second}), std::vector<int32_t>{0}, std::vector<int32_t>{1}});
    const Output one = Op(s, "ConcatV2", {InputList{batch, std::vector<int32_t>{1}}, 0});
    const Output logits =
        Op(s.WithOpName("logits"), "Mul", {Op(s, "Fill", {one, Input(1.0f).In(s, DType::kFloat)}), bias});
    if (!scope.ok()) return EstimatorSpec();
    EstimatorSpec spec = head->MakeSpec(scope, args, logits);
    if (args.training()) {
      spec.optimizer =
          baseline.optimizer != nullptr
              ? baseline.optimizer(scope)
              : std::make_shared<optimizers::Ftrl>(optimizers::FtrlOptions{.learning_rate = kBaselineRate});
    }
    return spec;
  };
  return Estimator::Create(model, std::move(config), std::move(options));
}

StatusOr<Estimator> DNNClassifier(RunConfig config, DNNOptions dnn, ClassifierOptions head, EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, ClassifierHead(std::move(head)));
  return DNNEstimator(std::move(config), std::move(dnn), std::move(made), std::move(options));
}
StatusOr<Estimator> DNNRegressor(RunConfig config, DNNOptions dnn, RegressorOptions head, EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, RegressorHead(std::move(head)));
  return DNNEstimator(std::move(config), std::move(dnn), std::move(made), std::move(options));
}
StatusOr<Estimator> LinearClassifier(RunConfig config, LinearOptions linear, ClassifierOptions head,
                                     EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, ClassifierHead(std::move(head)));
  return LinearEstimator(std::move(config), std::move(linear), std::move(made), std::move(options));
}
StatusOr<Estimator> LinearRegressor(RunConfig config, LinearOptions linear, RegressorOptions head,
                                    EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, RegressorHead(std::move(head)));
  return LinearEstimator(std::move(config), std::move(linear), std::move(made), std::move(options));
}
StatusOr<Estimator> DNNLinearCombinedClassifier(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                                ClassifierOptions head, EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, ClassifierHead(std::move(head)));
  return DNNLinearCombinedEstimator(std::move(config), std::move(linear), std::move(dnn), std::move(made),
                                    std::move(options));
}
StatusOr<Estimator> DNNLinearCombinedRegressor(RunConfig config, LinearOptions linear, DNNOptions dnn,
                                               RegressorOptions head, EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, RegressorHead(std::move(head)));
  return DNNLinearCombinedEstimator(std::move(config), std::move(linear), std::move(dnn), std::move(made),
                                    std::move(options));
}
StatusOr<Estimator> BaselineClassifier(RunConfig config, ClassifierOptions head, BaselineOptions baseline,
                                       EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, ClassifierHead(std::move(head)));
  return BaselineEstimator(std::move(config), std::move(made), std::move(baseline), std::move(options));
}
StatusOr<Estimator> BaselineRegressor(RunConfig config, RegressorOptions head, BaselineOptions baseline,
                                      EstimatorOptions options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const Head> made, RegressorHead(std::move(head)));
  return BaselineEstimator(std::move(config), std::move(made), std::move(baseline), std::move(options));
}

}  // namespace millrace
