// BatchNorm and Dropout: layers that behave differently in training and inference.
#include "millrace/api/layers.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/partitioned_variable.h"
#include "millrace/api/reductions.h"
#include "millrace/api/replica.h"
#include "millrace/api/variable_creation.h"

namespace millrace::layers {
namespace {

// `training` as a constant, or as a tensor whose value is known at run time.
struct Training {
  bool is_fixed = false;
  bool fixed = false;
  Output fed;
};

Training TrainingOf(const Scope& s, const Input& input) {
  Training training;
  if (input.is_nothing() || (!input.is_output() && input.literal().usual_type() != DType::kBool) ||
      (input.is_output() && input.output().dtype() != DType::kBool)) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": `training` must be a bool or a tensor of one"));
    return training;
  }
  if (input.is_output()) {
    training.fed = input.output();
  } else {
    StatusOr<Tensor> value = input.literal().AsUsual();
    training.is_fixed = true;
    training.fixed = value.ok() && value->num_elements() == 1 && value->scalar<bool>();
  }
  return training;
}

struct NormVariables {
  Output gamma;
  Output beta;
  Var moving_mean;
  Var moving_variance;
};

NormVariables MakeVariables(const Scope& s, int64_t channels, const BatchNormOptions& options) {
  const Shape shape({channels});
  const VarOptions learnt{.trainable = options.trainable};
  const VarOptions moving{.trainable = false, .aggregation = VariableAggregation::kMean};
  NormVariables v;
  const auto weight = [&](const char* name, const Initializer& init) {
    return api_internal::WholeOf(s, PartitionedVar(s, name, shape, init, learnt));
  };
  v.gamma = options.scale ? weight("gamma", init::Ones()) : init::Ones()(s.SubScope("gamma"), shape, DType::kFloat);
  v.beta = options.center ? weight("beta", init::Zeros()) : init::Zeros()(s.SubScope("beta"), shape, DType::kFloat);
  v.moving_mean = Var(s, "moving_mean", shape, init::Zeros(), moving);
  v.moving_variance = Var(s, "moving_variance", shape, init::Ones(), moving);
  return v;
}

void MoveAverage(const Scope& s, const Var& average, const Output& batch, const Output& share) {
  AddUpdateOp(average.AssignSub(s.SubScope("AssignMovingAvg"), (average - batch) * share));
}

// The fused op, if `training` is known when the graph is built.
Output Fused(const Scope& s, const Output& x, const NormVariables& v, bool training, const BatchNormOptions& options) {
  const bool is_image = x.shape().rank() == 4;
  const Output in =
      is_image ? x
               : Op(s, "Reshape",
                    {x, std::vector<int32_t>{-1, 1, 1, static_cast<int32_t>(x.shape().dim(x.shape().rank() - 1))}});
  const Output none = Input(Tensor(DType::kFloat, Shape({0}))).In(s.WithOpName("none"));
  const Operation norm =
      AddOp(s, "FusedBatchNormV3",
            {in, v.gamma, v.beta, training ? none : Output(v.moving_mean), training ? none : Output(v.moving_variance)},
            {{"epsilon", options.epsilon}, {"is_training", training}});
  if (training && s.ok()) {
    const Output share = Input(1 - options.momentum).In(s.WithOpName("share"));
    MoveAverage(s, v.moving_mean, norm.output(1), share);
    MoveAverage(s, v.moving_variance, norm.output(2), share);
  }
  return is_image ? norm.output(0) : Op(s, "Reshape", {norm.output(0), Op(s, "Shape", {x})});
}

// Statistics chosen at run time; the gradient flows through the chosen ones.
Output Chosen(const Scope& s, const Output& x, const NormVariables& v, const Output& training,
              const BatchNormOptions& options) {
  std::vector<int32_t> axes;
  for (int i = 0; i + 1 < x.shape().rank(); ++i) axes.push_back(i);
  const Output batch_mean = Op(s.WithOpName("batch_mean"), "Mean", {x, axes});
  const Output batch_variance =
      Op(s.WithOpName("batch_variance"), "Mean", {Op(s, "SquaredDifference", {x, batch_mean}), axes});
  const Output mean = Op(s, "SelectV2", {training, batch_mean, v.moving_mean});
  const Output variance = Op(s, "SelectV2", {training, batch_variance, v.moving_variance});
  const Output share = Op(s, "Cast", {training}, {{"DstT", DType::kFloat}}) * (1 - options.momentum);
  MoveAverage(s, v.moving_mean, batch_mean, share);
  MoveAverage(s, v.moving_variance, batch_variance, share);
  const Output factor = Op(s, "Rsqrt", {variance + options.epsilon}) * v.gamma;
  return Op(s, "AddV2", {Op(s, "Mul", {x, factor}), Op(s, "Sub", {v.beta, Op(s, "Mul", {mean, factor})})});
}

}  // namespace

Output BatchNorm(const Scope& scope, const Input& x, const Input& training, const BatchNormOptions& options) {
  const Scope s = scope.ForComposite("batch_normalization");
  const Output in = x.In(s);
  const Training mode = TrainingOf(s, training);
  if (!s.ok()) return Output(s, Endpoint{});
  const PartialShape shape = in.shape();
  if (!shape.known_rank() || shape.rank() < 2 || shape.dim(shape.rank() - 1) <= 0 || in.dtype() != DType::kFloat) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the input ", in.name(), " is ", DTypeName(in.dtype()), " ",
                                   shape.ToString(), ", and must be float with a known last dimension after others"));
    return Output(s, Endpoint{});
  }
  const NormVariables v = MakeVariables(s, shape.dim(shape.rank() - 1), options);
  return mode.is_fixed ? Fused(s, in, v, mode.fixed, options) : Chosen(s, in, v, mode.fed, options);
}

Output Dropout(const Scope& scope, const Input& x, double rate, const Input& training, const DropoutOptions& options) {
  const Scope s = scope.ForComposite("dropout");
  const Output in = x.In(s);
  const Training mode = TrainingOf(s, training);
  if (!s.ok()) return Output(s, Endpoint{});
  if (!(rate >= 0 && rate < 1)) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the rate ", rate, " is not in [0, 1)"));
    return Output(s, Endpoint{});
  }
  if (rate == 0 || (mode.is_fixed && !mode.fixed)) return Op(s, "Identity", {in});

  // The effective rate: 0 outside training.
  const Output step_rate =
      mode.is_fixed ? Input(rate).In(s, in.dtype(), "rate") : Op(s, "Cast", {mode.fed}, {{"DstT", in.dtype()}}) * rate;
  const Output random = api_internal::UniformLike(s, in, options.seed);
  const Output keep = Op(s, "Cast", {random >= step_rate}, {{"DstT", in.dtype()}});
  return Op(s, "Mul", {Op(s, "Mul", {in, 1 / (1 - step_rate)}), keep});
}

}  // namespace millrace::layers
