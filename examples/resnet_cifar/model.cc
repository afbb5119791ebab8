#include "examples/resnet_cifar/model.h"

#include "examples/resnet_cifar/resnet.h"

using namespace millrace;

namespace {

Output LearningRate(const Scope& scope, const Flags& flags, const Var& step, int64_t steps_per_epoch) {
  const double rate = flags.learning_rate * static_cast<double>(flags.batch_size) / 128;
  std::vector<int64_t> boundaries;
  std::vector<float> rates = {static_cast<float>(rate)};
  for (const int64_t epoch : {91, 136, 182}) {
    boundaries.push_back(epoch * steps_per_epoch);
    rates.push_back(rates.back() / 10);
  }
  const Output decayed = schedules::PiecewiseConstant(scope, step, boundaries, rates);
  if (flags.warmup_epochs == 0) return decayed;
  return schedules::Warmup(scope, step, decayed, static_cast<double>(flags.warmup_epochs * steps_per_epoch));
}

Output CrossEntropy(const Scope& scope, const Flags& flags, const Output& labels, const Output& logits) {
  if (flags.label_smoothing == 0) return losses::SparseSoftmaxCrossEntropy(scope, labels, logits);
  return losses::SoftmaxCrossEntropy(scope, ops::OneHot(scope, labels, 10, 1.0, 0.0), logits,
                                     {.label_smoothing = flags.label_smoothing});
}

}  // namespace

int64_t GlobalBatch(const Flags& flags, const Strategy& strategy) {
  return strategy.is_synchronous() ? flags.batch_size : flags.batch_size * strategy.num_workers();
}

bool EvaluateTogether(const Strategy* strategy) { return strategy != nullptr && strategy->is_synchronous(); }

Model BuildModel(const Scope& scope, const Flags& flags, int64_t steps_per_epoch, Strategy* strategy) {
  const ResNetOptions resnet{.size = flags.resnet_size, .version = flags.version, .weight_decay = flags.weight_decay};
  const char* const name = "resnet_model";
  const auto loss_of = [&](const Scope& s, const std::vector<Output>& in) -> Output {
    const Output logits = ResNetLogits(s.VariableScope(name), in[0], /*training=*/true, resnet);
    return CrossEntropy(s, flags, in[1], logits) + losses::RegularizationLoss(s);
  };
  Model m;
  m.global_step = GlobalStep(scope);
  m.learning_rate = LearningRate(scope, flags, m.global_step, steps_per_epoch);
  optimizers::Momentum momentum({.learning_rate = m.learning_rate, .momentum = 0.9});
  if (strategy != nullptr) {
    const ReplicaInputs inputs =
        strategy->MakeInputs(scope, GlobalBatch(flags, *strategy), {{DType::kFloat, {32, 32, 3}}, {DType::kInt32, {}}});
    m.feeds = inputs.feeds;
    const PerReplica losses = strategy->Run(scope, inputs, Strategy::ReplicaFn(loss_of));
    m.loss = strategy->Reduce(scope.WithOpName("loss"), ReplicaReduction::kMean, losses);
    m.train = strategy->Minimize(scope, momentum, losses);
  } else {
    const int64_t n = flags.batch_size;
    m.feeds = {ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {n, 32, 32, 3}}),
               ops::Placeholder(scope.WithOpName("labels"), DType::kInt32, {.shape = {n}})};
    m.loss = loss_of(scope, m.feeds);
    m.train = momentum.Minimize(scope, m.loss, {.global_step = m.global_step});
  }
  if (!flags.model_dir.empty()) {
    ScalarSummary(scope, "loss", m.loss);
    ScalarSummary(scope, "learning_rate", m.learning_rate);
  }

  const auto test = [&](const Scope& s, const std::vector<Output>& in) -> std::vector<Output> {
    const Output logits = ResNetLogits(s.VariableScope(name, Reuse::kYes), in[0], /*training=*/false, resnet);
    return {ops::Size(s, in[1], {.out_type = DType::kInt64}),
            losses::SparseSoftmaxCrossEntropy(s, in[1], logits, {.reduction = losses::Reduction::kSum}),
            metrics::NumCorrect(s, in[1], logits)};
  };
  std::vector<Output> told;
  if (EvaluateTogether(strategy)) {
    const ReplicaInputs inputs =
        strategy->MakeInputs(scope.WithOpName("test"), flags.eval_batch_size,
                             {{DType::kFloat, {32, 32, 3}}, {DType::kInt32, {}}}, /*drop_remainder=*/false);
    m.test_feeds = inputs.feeds;
    for (const PerReplica& values : strategy->Run(scope, inputs, Strategy::ReplicaListFn(test)))
      told.push_back(strategy->Reduce(scope, ReplicaReduction::kSum, values));
  } else {
    m.test_feeds = {ops::Placeholder(scope.WithOpName("test_images"), DType::kFloat, {.shape = {-1, 32, 32, 3}}),
                    ops::Placeholder(scope.WithOpName("test_labels"), DType::kInt32, {.shape = {-1}})};
    told = test(scope, m.test_feeds);
  }
  if (!scope.ok()) return m;
  m.num_images = told[0];
  m.test_loss = told[1];
  m.num_correct = told[2];
  return m;
}
