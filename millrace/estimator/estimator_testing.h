// A straight line as a model, for the tests of this folder. For tests only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/estimator/estimator.h"
#include "millrace/millrace.h"

namespace millrace {

// y = w x + b, from zeros.
inline EstimatorSpec LineModel(const Scope& scope, const ModelArgs& args) {
  const Var w(scope, "w", {1, 1}, init::Zeros());
  const Var b(scope, "b", {1}, init::Zeros());
  const Output y = ops::MatMul(scope, args.feature(scope), w) + b;
  EstimatorSpec spec{.predictions = {{"y", y}, {"twice", y * 2}}};
  if (args.mode == ModelMode::kPredict) return spec;
  spec.loss = losses::MeanSquaredError(scope, args.label(scope), y);
  spec.optimizer = std::make_shared<optimizers::GradientDescent>(
      optimizers::GradientDescentOptions{.learning_rate = args.param(scope, "learning_rate", 0.1)});
  spec.eval_metric_ops["rmse"] = streaming::RootMeanSquaredError(scope, args.label(scope), y);
  return spec;
}

// Points of y = 3 x - 1.
inline Dataset LinePoints(int n) {
  std::vector<float> xs, ys;
  for (int i = 0; i < n; ++i) {
    xs.push_back(static_cast<float>(i % 8) / 8);
    ys.push_back(3 * xs.back() - 1);
  }
  const auto column = [n](const std::vector<float>& values) {
    return Tensor::FromVector(values).Reshaped({n, 1}).value();
  };
  return Dataset::FromTensors({column(xs), column(ys)}).value();
}

// Batches of them.
inline InputFn LineInput(int n = 32, int batch = 8, int64_t repeat = -1) {
  return [=](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
    return EstimatorInput{.dataset = LinePoints(n).Batch(batch).Repeat(repeat)};
  };
}
// The points, of which the Estimator makes batches.
inline InputFn LineExamples(int n = 32, int batch = 8) {
  return [=](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
    return EstimatorInput{.dataset = LinePoints(n), .batches = DistributeOptions{.batch_size = batch}};
  };
}

class EstimatorTest : public ::testing::Test {
 protected:
  std::string Dir(absl::string_view name = "run") const { return directory_.File(name); }

  RunConfigOptions Options(absl::string_view name = "run") const {
    return {.model_dir = Dir(name), .tf_random_seed = 1, .log_step_count_steps = 0};
  }
  Estimator Line(RunConfigOptions options, EstimatorOptions more = {}) const {
    return Estimator::Create(LineModel, RunConfig::Of({}, std::move(options)).value(), std::move(more)).value();
  }
  Estimator Line() const { return Line(Options()); }

  static float WeightOf(const Estimator& estimator) {
    const StatusOr<Tensor> w = estimator.GetVariableValue("w");
    EXPECT_EQ(w.status(), absl::OkStatus());
    return w.ok() ? w->data<float>()[0] : 0;
  }
  static int64_t StepOf(const Estimator& estimator) {
    return StepOfCheckpoint(estimator.LatestCheckpoint().value()).value_or(-1);
  }

 private:
  const TempDirectory directory_ = TempDirectory::Make("estimator_test").value();
};

}  // namespace millrace
