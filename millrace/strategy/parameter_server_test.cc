// Strategies whose variables are on tasks or devices of their own: ParameterServer and CentralStorage.
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/optimizers.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/strategy/strategy.h"
#include "millrace/train/global_step.h"
#include "millrace/train/hooks/hooks.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFitBatch = 8;

// y = 3 x0 - 2 x1 + 1
struct Fit {
  explicit Fit(Strategy& strategy) : scope(strategy.NewScope()) {
    scope.SetRandomSeed(1);
    batch = strategy.MakeInputs(scope, kFitBatch, {{DType::kFloat, {2}}, {DType::kFloat, {1}}});
    const PerReplica losses = strategy.Run(scope, batch, [](const Scope& replica, const std::vector<Output>& in) {
      const Output h = layers::Dense(replica, in[0], 4);
      return losses::MeanSquaredError(replica, in[1], layers::Dense(replica, h, 1));
    });
    loss = strategy.Reduce(scope, ReplicaReduction::kMean, losses);
    optimizers::GradientDescent descent({.learning_rate = 0.03});
    train = strategy.Minimize(scope, descent, losses);
  }
  static Dataset Examples() {
    constexpr int64_t kCount = 64;
    Tensor x(DType::kFloat, {kCount, 2}), y(DType::kFloat, {kCount, 1});
    for (int64_t i = 0; i < kCount; ++i) {
      const float a = static_cast<float>(i % 8) / 8, b = static_cast<float>(i / 8) / 8;
      x.data<float>()[2 * i] = a;
      x.data<float>()[2 * i + 1] = b;
      y.data<float>()[i] = 3 * a - 2 * b + 1;
    }
    return Dataset::FromTensors({x, y}).value();
  }
  // Returns the losses of this worker's steps.
  StatusOr<std::vector<float>> Train(Strategy& strategy, int64_t last_step, MonitoredTrainingSessionOptions options) {
    options.hooks.push_back(std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = last_step}));
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                        strategy.TrainingSession(scope, std::move(options)));
    MR_ASSIGN_OR_RETURN(const MonitoredStep step, session->MakeStep(batch.feeds, {loss}, {train}));
    MR_ASSIGN_OR_RETURN(const Dataset batches, strategy.DistributeDataset(Examples(), {.batch_size = kFitBatch}));
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> it, strategy.MakeIterator(batches));
    std::vector<float> told;
    std::vector<Tensor> element;
    while (!session->ShouldStop()) {
      MR_RETURN_IF_ERROR(it->Next(&element).status());
      MR_ASSIGN_OR_RETURN(const Tensors result, step(element));
      told.push_back(result[0].scalar<float>());
    }
    MR_RETURN_IF_ERROR(session->Close());
    return told;
  }

  Scope scope;
  ReplicaInputs batch;
  Output loss;
  Operation train;
};

class ParameterServerTest : public ::testing::Test {
 protected:
  ParameterServerTest() {
    const std::vector<int> ports = FreePorts(4);
    const auto at = [&](int i) { return absl::StrCat("localhost:", ports[i]); };
    cluster_ = ClusterSpec::Of({{"ps", {at(0), at(1)}}, {"worker", {at(2), at(3)}}}).value();
    for (int i : {0, 1}) ps_.push_back(Server::Start(cluster_, "ps", i).value());
  }
  TaskConfig Worker(int index) const { return {.cluster = cluster_, .task = {"worker", index}}; }

  ClusterSpec cluster_;
  std::vector<std::unique_ptr<Server>> ps_;
};

TEST_F(ParameterServerTest, WorkersTrainTogetherAtTheirOwnPace) {
  std::vector<std::thread> threads;
  std::atomic<int> steps{0};
  for (int worker : {0, 1}) {
    threads.emplace_back([&, worker] {
      const auto strategy = ParameterServerStrategy(Worker(worker)).value();
      EXPECT_EQ(strategy->num_workers(), 2);
      EXPECT_EQ(strategy->is_chief(), worker == 0);
      Fit fit(*strategy);
      ASSERT_TRUE(fit.scope.ok()) << fit.scope.status();
      std::set<std::string> places;
      for (const Var& variable : TrainableVariables(fit.scope)) {
        places.insert(variable.handle().node()->requested_device());
      }
      EXPECT_EQ(places.size(), 2u);
      const auto losses = fit.Train(*strategy, 400, {});
      ASSERT_TRUE(losses.ok()) << losses.status();
      steps += static_cast<int>(losses->size());
      EXPECT_TRUE(losses->empty() || losses->back() < 0.05f);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The global step counts those of both; each may make one more when the other reaches the last.
  EXPECT_GE(steps, 400);
  EXPECT_LE(steps, 402);
}

TEST_F(ParameterServerTest, AWorkerThatLeavesDoesNotStopTheOther) {
  const auto first = ParameterServerStrategy(Worker(0)).value();
  {
    const auto second = ParameterServerStrategy(Worker(1)).value();
    Fit fit(*first);
    ASSERT_TRUE(fit.Train(*first, 50, {}).ok());
    Fit late(*second);
    ASSERT_TRUE(late.Train(*second, 100, {}).ok());
  }
  Fit fit(*first);
  const auto losses = fit.Train(*first, 150, {.keep_values = true});
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_EQ(losses->size(), 50u);
}

TEST(ParameterServer, WithoutAClusterItIsATrainingOfOne) {
  const auto strategy = ParameterServerStrategy(TaskConfig()).value();
  EXPECT_EQ(strategy->num_replicas(), 1);
  Fit fit(*strategy);
  const auto losses = fit.Train(*strategy, 300, {});
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_LT(losses->back(), losses->front() / 10);
}

TEST(ParameterServer, AClusterThatDoesNotFitIsNamed) {
  const ClusterSpec without = ClusterSpec::Of({{"worker", {"localhost:1", "localhost:2"}}}).value();
  EXPECT_THAT(ParameterServerStrategy({.cluster = without, .task = {"worker", 0}}).status().ToString(),
              HasSubstr("needs tasks of job ps"));
  const ClusterSpec other = ClusterSpec::Of({{"ps", {"localhost:1"}}, {"tpu", {"localhost:2"}}}).value();
  EXPECT_THAT(ParameterServerStrategy({.cluster = other, .task = {"tpu", 0}}).status().ToString(),
              HasSubstr("/job:tpu/replica:0/task:0 neither serves"));
}

TEST(CentralStorage, GivesTheBytesOfMirrored) {
  const StrategyOptions options{.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 4};
  const auto mirrored = MirroredStrategy(options).value();
  const auto central = CentralStorageStrategy(options).value();
  Fit a(*mirrored), b(*central);
  const auto expected = a.Train(*mirrored, 20, {}), got = b.Train(*central, 20, {});
  ASSERT_TRUE(expected.ok() && got.ok()) << expected.status() << got.status();
  EXPECT_EQ(*got, *expected);
}

TEST_F(ParameterServerTest, CentralStorageHasTowersOnOtherTasks) {
  const auto local = MirroredStrategy({.shards = 2}).value();
  Fit expected(*local);
  const auto central =
      CentralStorageStrategy({.devices = {"/job:ps/task:0/device:CPU:0", "/job:ps/task:1/device:CPU:0"},
                              .shards = 2,
                              .variable_device = "/job:ps/task:0/device:CPU:0"})
          .value();
  Fit fit(*central);
  const auto server = Server::Start(cluster_, "worker", 0).value();
  const auto losses = fit.Train(*central, 20, {.master = server->target()});
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_EQ(*losses, *expected.Train(*local, 20, {}));
  const Node* const tower = fit.scope.graph()->FindNode("replica_1/dense/MatMul");
  ASSERT_NE(tower, nullptr);
  EXPECT_THAT(tower->requested_device(), HasSubstr("task:1"));
  EXPECT_THAT(MirroredStrategy({.devices = {"/job:ps/task:0"}}).status().ToString(), HasSubstr("its own process"));
}

}  // namespace
}  // namespace millrace
