// Trainings give the same bytes on any number of workers and devices.
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/operators.h"
#include "millrace/api/ops/all_ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/data/mnist.h"
#include "millrace/strategy/strategy_testing.h"
#include "millrace/train/hooks/hooks.h"

namespace millrace {
namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kFeatures = 12;

// What a training ends with: all variables by name, as bytes, and the loss of each step.
struct Outcome {
  std::map<std::string, std::string> variables;
  std::vector<float> losses;
  Status status = absl::UnknownError("not run");
};

// Batch normalisation, dropout, and weights that are used three times in a replica, once by their regularization.
Output Model(const Scope& replica, const std::vector<Output>& in) {
  Output h = layers::Dense(replica, in[0], 16, {.activation = ops::Relu, .l2 = 1e-3});
  h = layers::BatchNorm(replica, h, true);
  for (int i = 0; i < 2; ++i) {
    h = layers::Dense(replica.VariableScope("tied", Reuse::kAuto).WithOpName("dense"), h, 16,
                      {.activation = ops::Tanh, .l2 = 1e-2});
  }
  h = layers::Dropout(replica, h, 0.3, true);
  const Output logits = layers::Dense(replica, h, 4);
  return losses::SparseSoftmaxCrossEntropy(replica, in[1], logits) + losses::RegularizationLoss(replica);
}

Dataset Examples() {
  constexpr int64_t kCount = 203;
  Tensor x(DType::kFloat, {kCount, kFeatures}), y(DType::kInt32, {kCount});
  uint32_t random = 7;
  for (float& value : x.flat<float>()) {
    random = random * 1664525u + 1013904223u;
    value = static_cast<float>(random >> 8) / static_cast<float>(1 << 23) - 1;
  }
  for (int64_t i = 0; i < kCount; ++i) {
    y.data<int32_t>()[i] =
        (x.data<float>()[i * kFeatures] > 0 ? 1 : 0) + (x.data<float>()[i * kFeatures + 1] > 0 ? 2 : 0);
  }
  return Dataset::FromTensors({x, y}).value();
}

struct Problem {
  Dataset examples = Examples();
  std::vector<InputSpec> specs = {{DType::kFloat, {kFeatures}}, {DType::kInt32, {}}};
  Strategy::ReplicaFn model = Model;
};

struct Training {
  int64_t last_step = 12;
  // 203 examples are 6 batches of 32 and one of 11.
  bool drop_remainder = true;
  int64_t repeat = -1;
  std::string checkpoint_dir = {};
  Problem problem = {};
};

Status TrainOn(Strategy& strategy, const Training& training, Outcome* outcome) {
  Scope scope = strategy.NewScope();
  scope.SetRandomSeed(11);
  const ReplicaInputs batch = strategy.MakeInputs(scope, kBatch, training.problem.specs, training.drop_remainder);
  const PerReplica loss = strategy.Run(scope, batch, training.problem.model);
  const Output mean = strategy.Reduce(scope, ReplicaReduction::kMean, loss);
  optimizers::Adam adam({.learning_rate = 0.01});
  const Operation train = strategy.Minimize(scope, adam, loss);
  auto stop = std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = training.last_step});
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                      strategy.TrainingSession(scope, {.checkpoint_dir = training.checkpoint_dir, .hooks = {stop}}));
  MR_ASSIGN_OR_RETURN(const Tensors step, session->raw_session()->Run({GlobalStep(scope)}));
  MR_ASSIGN_OR_RETURN(const Dataset batches, strategy.DistributeDataset(training.problem.examples,
                                                                        {.batch_size = kBatch,
                                                                         .repeat = training.repeat,
                                                                         .drop_remainder = training.drop_remainder,
                                                                         .first_batch = step[0].scalar<int64_t>()}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> it,
                      strategy.MakeIterator(batches, training.drop_remainder));
  MR_ASSIGN_OR_RETURN(const MonitoredStep run, session->MakeStep(batch.feeds, {mean}, {train}));
  std::vector<Tensor> element;
  while (!session->ShouldStop()) {
    MR_ASSIGN_OR_RETURN(const bool more, it->Next(&element));
    if (!more) break;
    MR_ASSIGN_OR_RETURN(const Tensors told, run(element));
    outcome->losses.push_back(told[0].scalar<float>());
  }
  for (const Var& variable : GlobalVariables(scope)) {
    MR_ASSIGN_OR_RETURN(const Tensors value, session->raw_session()->Run({variable}));
    outcome->variables[variable.var_name()] =
        std::string(static_cast<const char*>(value[0].raw_data()), value[0].TotalBytes());
  }
  return session->Close();
}

Outcome Train(Strategy& strategy, const Training& training) {
  Outcome outcome;
  outcome.status = TrainOn(strategy, training, &outcome);
  return outcome;
}

Outcome OnOneDevice(const Training& training = {}, StrategyOptions options = {}) {
  const StatusOr<std::unique_ptr<Strategy>> strategy = OneDeviceStrategy(std::move(options));
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  return Train(**strategy, training);
}

std::vector<Outcome> OnMany(int workers, const Training& training = {}, const StrategyOptions& options = {}) {
  return OnWorkers<Outcome>(workers, options, [&](Strategy& strategy) { return Train(strategy, training); });
}

void ExpectSame(const Outcome& got, const Outcome& wanted, const std::string& what) {
  ASSERT_TRUE(got.status.ok()) << what << ": " << got.status;
  ASSERT_TRUE(wanted.status.ok()) << wanted.status;
  EXPECT_EQ(got.losses, wanted.losses) << what;
  ASSERT_EQ(got.variables.size(), wanted.variables.size()) << what;
  for (const auto& [name, bytes] : wanted.variables) {
    const auto found = got.variables.find(name);
    ASSERT_TRUE(found != got.variables.end()) << what << " has no variable " << name;
    EXPECT_TRUE(found->second == bytes) << what << ": variable " << name << " has other bytes";
  }
}

void ExpectOk(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST(FixedOrder, WeightsHaveTheSameBytesOnAnyNumberOfWorkers) {
  const Outcome alone = OnOneDevice();
  EXPECT_EQ(alone.losses.size(), 12u);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  EXPECT_TRUE(alone.variables.count("tied/dense/kernel"));
  EXPECT_TRUE(alone.variables.count("batch_normalization/moving_mean"));
  for (const int workers : {2, 3, 4, 5, 8}) {
    const std::vector<Outcome> outcomes = OnMany(workers);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      ExpectSame(outcomes[i], alone, absl::StrCat("worker ", i, " of ", workers));
    }
  }
}

TEST(FixedOrder, WeightsHaveTheSameBytesOnAnyNumberOfDevices) {
  const Outcome alone = OnOneDevice();
  const std::vector<std::string> cpus = {"/device:CPU:0", "/device:CPU:1", "/device:CPU:2", "/device:CPU:3"};
  for (const size_t devices : {2, 4}) {
    const auto strategy = MirroredStrategy({.devices = {cpus.begin(), cpus.begin() + devices}});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    ExpectSame(Train(**strategy, {}), alone, absl::StrCat(devices, " devices"));
  }
  for (const Outcome& outcome : OnMany(2, {}, {.devices = {cpus[0], cpus[1]}})) {
    ExpectSame(outcome, alone, "2 workers with 2 devices");
  }
}

TEST(FixedOrder, ATrainingGoesOnWithAnotherNumberOfWorkers) {
  const Outcome alone = OnOneDevice();
  const std::string folder = absl::StrCat(::testing::TempDir(), "/fixed_order_restart_", getpid());
  const auto from = [&](int64_t step) { return Training{.last_step = step, .checkpoint_dir = folder}; };
  std::filesystem::remove_all(folder);
  ExpectOk(OnMany(3, from(4)));
  ExpectOk({OnOneDevice(from(6))});
  ExpectOk(OnMany(5, from(9)));
  for (Outcome outcome : OnMany(2, from(12))) {
    EXPECT_EQ(outcome.losses, std::vector<float>(alone.losses.end() - 3, alone.losses.end()));
    outcome.losses = alone.losses;
    ExpectSame(outcome, alone, "after three restarts");
  }
  std::filesystem::remove_all(folder);
}

TEST(FixedOrder, MnistHasTheSameBytesAfter200Steps) {
  const StatusOr<Mnist> data = LoadMnist(MILLRACE_MNIST);
  ASSERT_TRUE(data.ok()) << data.status();
  Problem mnist{
      .examples = Dataset::FromTensors({data->train_images.Slice(0, 5000), data->train_labels.Slice(0, 5000)}).value(),
      .specs = {{DType::kFloat, {784}}, {DType::kInt64, {}}},
      .model = [](const Scope& replica, const std::vector<Output>& in) {
        const Output h = layers::Dense(replica, in[0], 24, {.activation = ops::Relu});
        return losses::SparseSoftmaxCrossEntropy(replica, in[1], layers::Dense(replica, h, 10));
      }};
  const Training training{.last_step = 200, .problem = mnist};
  const Outcome alone = OnOneDevice(training);
  EXPECT_LT(alone.losses.back(), 0.7 * alone.losses.front());
  for (const int workers : {2, 3, 4, 5, 8}) {
    for (const Outcome& outcome : OnMany(workers, training))
      ExpectSame(outcome, alone, absl::StrCat(workers, " workers"));
  }
}

TEST(FixedOrder, APartialBatchHasTheSameBytesOnAnyNumberOfWorkers) {
  const Training one_epoch{.drop_remainder = false, .repeat = 1};
  const Outcome alone = OnOneDevice(one_epoch);
  EXPECT_EQ(alone.losses.size(), 7u);
  // Whole batches count as without partial ones.
  const Outcome whole = OnOneDevice({.last_step = 6, .repeat = 1});
  EXPECT_EQ(whole.losses, std::vector<float>(alone.losses.begin(), alone.losses.end() - 1));
  for (const int workers : {2, 3, 5, 8}) {
    for (const Outcome& outcome : OnMany(workers, one_epoch))
      ExpectSame(outcome, alone, absl::StrCat(workers, " workers"));
  }
}

TEST(FixedOrder, WithoutItWorkersAreEqualButTheirNumberMatters) {
  const Outcome alone = OnOneDevice({}, {.shards = 0});
  const std::vector<Outcome> two = OnMany(2, {}, {.shards = 0, .all_reduce_alg = "ring"});
  ExpectSame(two[1], two[0], "the other worker");
  EXPECT_NE(two[0].losses.back(), alone.losses.back());
  // Two halves of a batch are normalised by themselves, so the losses are only alike.
  EXPECT_NEAR(two[0].losses.back(), alone.losses.back(), 0.3);
  ExpectSame(OnOneDevice({}, {.shards = 2}), OnOneDevice({}, {.shards = 2}), "twice the same");
}

TEST(FixedOrder, TheNumberOfExchangesDoesNotChangeTheResult) {
  const Outcome alone = OnOneDevice();
  ExpectSame(OnMany(3, {}, {.bucket_bytes = 1})[2], alone, "an exchange for each gradient");
  ExpectSame(OnMany(3, {}, {.num_packs = 2})[1], alone, "two exchanges");
}

}  // namespace
}  // namespace millrace
