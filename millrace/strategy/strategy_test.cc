#include <latch>

#include "gmock/gmock.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/ops/all_ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/scope_state.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/strategy/broadcast_variables.h"
#include "millrace/strategy/shard_reducer.h"
#include "millrace/strategy/strategy_testing.h"
#include "millrace/train/hooks/hooks.h"

namespace millrace {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A graph with a weight for each feature and the loss of its product with the batch.
struct Line {
  Scope scope;
  ReplicaInputs batch = {};
  Output loss = {};
  Operation train = {};
};

Line BuildLine(Strategy& strategy, int64_t features = 2) {
  Line line{.scope = strategy.NewScope()};
  line.batch = strategy.MakeInputs(line.scope, 8, {{DType::kFloat, {features}}});
  const PerReplica loss = strategy.Run(line.scope, line.batch, [](const Scope& replica, const std::vector<Output>& in) {
    return ops::Mean(replica, ops::Square(replica, layers::Dense(replica, in[0], 1) - 1.0), std::vector<int32_t>{0, 1});
  });
  line.loss = strategy.Reduce(line.scope, ReplicaReduction::kMean, loss);
  optimizers::GradientDescent descent({.learning_rate = 0.1});
  line.train = strategy.Minimize(line.scope, descent, loss);
  return line;
}

std::vector<Tensor> Ones(const Strategy& strategy, int64_t features = 2) {
  Tensor ones(DType::kFloat, {8 / strategy.num_replicas(), features});
  for (float& value : ones.flat<float>()) value = 1;
  return std::vector<Tensor>(static_cast<size_t>(strategy.local_replicas()), ones);
}

// Runs `steps` steps.
Status TrainLine(Strategy& strategy, const Line& line, int steps, int64_t features = 2) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session, strategy.TrainingSession(line.scope));
  MR_ASSIGN_OR_RETURN(const MonitoredStep step, session->MakeStep(line.batch.feeds, {line.loss}, {line.train}));
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(step(Ones(strategy, features)).status());
  return session->Close();
}

TEST(Strategy, TheTotalLossIsThatOfTheReplica) {
  const auto strategy = OneDeviceStrategy({.shards = 2}).value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 4, {{DType::kFloat, {2}}});
  int replicas = 0;
  const PerReplica loss = strategy->Run(scope, batch, [&](const Scope& replica, const std::vector<Output>& in) {
    const Output y = layers::Dense(replica, in[0], 2, {.kernel_initializer = init::Ones(), .l2 = 1});
    losses::MeanSquaredError(replica, in[0], y);
    EXPECT_EQ(losses::GetLosses(replica).size(), 1) << "replica " << replicas;
    // Variables are shared, and so is their regularization.
    EXPECT_EQ(losses::GetRegularizationLosses(replica).size(), 1) << "replica " << replicas;
    ++replicas;
    return losses::GetTotalLoss(replica);
  });
  EXPECT_EQ(replicas, 2);
  EXPECT_TRUE(losses::GetLosses(scope).empty());
  const Output mean = strategy->Reduce(scope, ReplicaReduction::kMean, loss);
  const auto session = strategy->TrainingSession(scope).value();
  const auto results = session->Run({{batch.feeds[0], Tensor::Of<float>(Shape({2, 2}), {1, 0, 0, 1})},
                                     {batch.feeds[1], Tensor::Of<float>(Shape({2, 2}), {2, 0, 0, 2})}},
                                    {mean});
  ASSERT_EQ(results.status(), absl::OkStatus());
  // The errors are the other numbers of the rows: 1/2 and 2; the kernel's term is 4 / 2.
  EXPECT_FLOAT_EQ((*results)[0].scalar<float>(), 1.25f + 2);
}

TEST(Strategy, ReplicasAreSpreadOverWorkersAndDevices) {
  const auto one = OneDeviceStrategy().value();
  EXPECT_EQ(one->num_replicas(), 8);
  EXPECT_EQ(one->local_replicas(), 8);
  EXPECT_TRUE(one->is_chief());
  const auto mirrored = MirroredStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 0}).value();
  EXPECT_EQ(mirrored->num_replicas(), 2);
  const std::vector<std::vector<int>> parts = OnWorkers<std::vector<int>>(3, {}, [](Strategy& s) -> std::vector<int> {
    return {s.worker_index(), s.first_replica(), s.local_replicas(), s.num_workers()};
  });
  EXPECT_THAT(parts, ElementsAre(ElementsAre(0, 0, 2, 3), ElementsAre(1, 2, 3, 3), ElementsAre(2, 5, 3, 3)));
}

TEST(Strategy, ReplicasRunOnTheirDevices) {
  const auto strategy = MirroredStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 4}).value();
  const Line line = BuildLine(*strategy);
  ASSERT_TRUE(line.scope.ok()) << line.scope.status();
  const auto device = [&](const char* node) {
    const Node* const found = line.scope.graph()->FindNode(node);
    return found == nullptr ? "none" : found->requested_device();
  };
  EXPECT_THAT(device("replica_1/dense/MatMul"), HasSubstr("CPU:0"));
  EXPECT_THAT(device("replica_2/dense/MatMul"), HasSubstr("CPU:1"));
  EXPECT_THAT(device("dense/kernel"), HasSubstr("CPU:0"));
  EXPECT_EQ(TrainableVariables(line.scope).size(), 2u);
  EXPECT_TRUE(TrainLine(*strategy, line, 2).ok());
}

TEST(Strategy, BadOptionsAreNamed) {
  const auto error = [](StrategyOptions options) { return std::string(MirroredStrategy(options).status().message()); };
  EXPECT_THAT(error({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 1}), HasSubstr("1 logical shards"));
  EXPECT_THAT(error({.shards = -1}), HasSubstr("shards is -1"));
  EXPECT_THAT(error({.all_reduce_alg = "nccl"}), HasSubstr("'nccl', only auto, ring"));
  EXPECT_THAT(error({.devices = {"/device:GPU:0", "/device:GPU:1"}}), HasSubstr("several GPUs"));
  EXPECT_THAT(error({.devices = {"everywhere"}}), HasSubstr("everywhere"));
  EXPECT_FALSE(OneDeviceStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}}).ok());

  const auto strategy = OneDeviceStrategy().value();
  const Scope scope = strategy->NewScope();
  strategy->MakeInputs(scope, 12, {{DType::kFloat, {2}}});
  EXPECT_THAT(std::string(scope.status().message()),
              HasSubstr("12 examples cannot be divided equally into 8 replicas"));
  EXPECT_FALSE(strategy->DistributeDataset(Dataset::Range(0, 10), {.batch_size = 12}).ok());
}

TEST(Strategy, VariablesThatReplicasAssignAreAggregated) {
  const auto strategy = OneDeviceStrategy({.shards = 4}).value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 4, {{DType::kFloat, {}}});
  std::vector<Operation> assigned;
  strategy->Run(scope, batch, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& in) {
                  const Output value = ops::Sum(replica, in[0], std::vector<int32_t>{0});
                  for (const auto& [name, how] : {std::pair("sum", VariableAggregation::kSum),
                                                  {"mean", VariableAggregation::kMean},
                                                  {"first", VariableAggregation::kFirstReplica}}) {
                    const Var variable(replica, name, Shape(), init::Ones(), {.trainable = false, .aggregation = how});
                    assigned.push_back(variable.AssignAdd(replica, value));
                  }
                  return value;
                }));
  ASSERT_TRUE(scope.ok()) << scope.status();
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_TRUE(session.Run(GlobalVariablesInitializer(scope)).ok());
  ClientSession::Feeds feeds;
  for (size_t i = 0; i < 4; ++i)
    feeds.emplace_back(batch.feeds[i], Tensor::Of<float>({static_cast<float>(10 * (i + 1))}));
  // The op of any replica runs the assignment of all, once.
  ASSERT_TRUE(session.Run(feeds, {}, assigned).ok());
  std::vector<float> values;
  for (const Var& variable : GlobalVariables(scope)) {
    if (variable.dtype() == DType::kFloat) values.push_back(session.Run({variable}).value()[0].scalar<float>());
  }
  EXPECT_THAT(values, ElementsAre(101, 26, 11));
}

TEST(Strategy, AGraphIsFreedWithItsScopes) {
  const auto strategy = OneDeviceStrategy().value();
  std::weak_ptr<api_internal::GraphState> graph;
  {
    const Scope scope = strategy->NewScope();
    graph = api_internal::SettingsOf(scope).state;
    const ReplicaInputs batch = strategy->MakeInputs(scope, 8, {{DType::kFloat, {3}}});
    const PerReplica loss = strategy->Run(scope, batch, [](const Scope& replica, const std::vector<Output>& in) {
      const Output h = layers::BatchNorm(replica, layers::Dense(replica, in[0], 2), true);
      return ops::Mean(replica, h, std::vector<int32_t>{0, 1});
    });
    optimizers::Adam adam({.learning_rate = 0.1});
    strategy->Minimize(scope, adam, loss);
    EXPECT_TRUE(scope.ok()) << scope.status();
    // The error ends Run early.
    strategy->Run(scope, batch, [](const Scope& replica, const std::vector<Output>& in) {
      const Output h = layers::BatchNorm(replica, in[0], true);
      replica.UpdateStatus(InvalidArgument("on purpose"));
      return h;
    });
  }
  EXPECT_TRUE(graph.expired());
}

TEST(Strategy, AVariableWithoutAggregationCannotBeAssignedByReplicas) {
  const auto strategy = OneDeviceStrategy().value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 8, {{DType::kFloat, {}}});
  strategy->Run(scope, batch, Strategy::ReplicaFn([](const Scope& replica, const std::vector<Output>& in) {
                  const Var count(replica, "count", Shape(), init::Zeros(), {.trainable = false});
                  count.AssignAdd(replica, 1.0);
                  return in[0];
                }));
  EXPECT_EQ(scope.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scope.status().message()), HasSubstr("count is assigned by replicas"));
}

TEST(Strategy, ReplicasThatDoDifferentThingsAreNamed) {
  const auto strategy = OneDeviceStrategy({.shards = 2}).value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 2, {{DType::kFloat, {3}}});
  int calls = 0;
  const PerReplica loss =
      strategy->Run(scope, batch, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& in) {
                      const Output y = layers::Dense(replica.WithOpName("a"), in[0], 1);
                      const Output z = layers::Dense(replica.WithOpName("b"), in[0], 1);
                      return ops::Sum(replica, ++calls == 1 ? y + z : y, std::vector<int32_t>{0, 1});
                    }));
  optimizers::GradientDescent descent({.learning_rate = 0.1});
  strategy->Minimize(scope, descent, loss);
  EXPECT_THAT(std::string(scope.status().message()), HasSubstr("variable b/kernel"));
}

TEST(Strategy, WorkersBeginWithTheChiefsVariablesEvenWithoutASeed) {
  const auto weights = OnWorkers<Tensors>(3, {}, [](Strategy& strategy) -> Tensors {
    const Line line = BuildLine(strategy, 50);
    const auto session = strategy.TrainingSession(line.scope);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? (*session)->raw_session()->Run({TrainableVariables(line.scope)[0]}).value() : Tensors();
  });
  ASSERT_EQ(weights[0].size(), 1u);
  EXPECT_EQ(weights[1][0].DebugString(50), weights[0][0].DebugString(50));
  EXPECT_EQ(weights[2][0].DebugString(50), weights[0][0].DebugString(50));
  EXPECT_NE(weights[0][0].flat<float>()[0], weights[0][0].flat<float>()[1]);
}

TEST(Strategy, SessionsMayShareTheirVariables) {
  OnWorkers<Status>(2, {}, [](Strategy& strategy) {
    const Line line = BuildLine(strategy);
    const auto resources = std::make_shared<ResourceManager>();
    const auto first = strategy.MakeSessionOptions({.resources = resources});
    const auto second = strategy.MakeSessionOptions({.resources = resources});
    EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    const Operation init = GlobalVariablesInitializer(line.scope);
    EXPECT_TRUE(ClientSession::Create(line.scope, *first)->Run(init).ok());
    ClientSession::Feeds feeds;
    for (size_t i = 0; i < line.batch.feeds.size(); ++i) feeds.emplace_back(line.batch.feeds[i], Ones(strategy)[i]);
    const Status status = ClientSession::Create(line.scope, *second)->Run(feeds, {line.loss}, {line.train}).status();
    EXPECT_TRUE(status.ok()) << status;
    return status;
  });
}

TEST(Strategy, AWorkerThatStopsInTheMiddleIsNamed) {
  const auto ends = OnWorkers<Status>(3, {}, [](Strategy& strategy) {
    const Line line = BuildLine(strategy);
    return TrainLine(strategy, line, strategy.worker_index() == 1 ? 3 : 50);
  });
  EXPECT_TRUE(ends[1].ok()) << ends[1];
  for (const int worker : {0, 2}) {
    EXPECT_THAT(ends[worker].code(), AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnavailable));
    EXPECT_THAT(std::string(ends[worker].message()), HasSubstr("/job:worker")) << ends[worker];
    EXPECT_THAT(std::string(ends[worker].message()), HasSubstr("task:1")) << ends[worker];
  }
}

TEST(Strategy, AnotherModelOnOneWorkerIsNamed) {
  const auto ends = OnWorkers<Status>(2, {}, [](Strategy& strategy) {
    const int64_t features = strategy.worker_index() == 1 ? 3 : 2;
    const Line line = BuildLine(strategy, features);
    return TrainLine(strategy, line, 3, features);
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(end.message()), HasSubstr("task:1")) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("dense/kernel")) << end;
  }
}

TEST(Strategy, AStepThatIsCancelledOnOneWorkerEndsWithTheReasonOnAll) {
  std::latch both(2);
  const auto ends = OnWorkers<Status>(2, {}, [&](Strategy& strategy) -> Status {
    const Line line = BuildLine(strategy);
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session, strategy.TrainingSession(line.scope));
    ClientSession::Feeds feeds;
    for (size_t i = 0; i < line.batch.feeds.size(); ++i) feeds.emplace_back(line.batch.feeds[i], Ones(strategy)[i]);
    Tensors results;
    Status status;
    // Worker 1 waits for worker 0, which does not run the step.
    if (strategy.worker_index() == 1) {
      status = session->Run({.timeout = absl::Milliseconds(50)}, feeds, {line.loss}, {line.train}, &results, nullptr);
    }
    both.arrive_and_wait();
    if (strategy.worker_index() == 0) status = session->Run(feeds, {line.loss}, {line.train}).status();
    return status;
  });
  EXPECT_EQ(ends[1].code(), absl::StatusCode::kDeadlineExceeded) << ends[1];
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("task:1")) << ends[0];
}

TEST(Strategy, DataThatEndsFirstOnOneWorkerEndsTheEpochOfAll) {
  const auto counts = OnWorkers<int>(3, {.shards = 3}, [](Strategy& strategy) {
    // Worker r has 5 - r batches.
    const auto it = strategy.MakeIterator(Dataset::Range(0, 5 - strategy.worker_index())).value();
    std::vector<Tensor> element;
    int count = 0;
    while (it->Next(&element).value()) ++count;
    EXPECT_FALSE(it->Next(&element).value());
    return count;
  });
  EXPECT_THAT(counts, ElementsAre(3, 3, 3));
}

TEST(Strategy, EveryExampleGoesToOneReplica) {
  // Four whole batches of two epochs of 37 examples.
  const auto seen = OnWorkers<std::vector<int64_t>>(2, {.shards = 4}, [](Strategy& strategy) {
    const Dataset batches =
        strategy.DistributeDataset(Dataset::Range(0, 37), {.batch_size = 16, .repeat = 2, .first_batch = 1}).value();
    const auto it = strategy.MakeIterator(batches).value();
    std::vector<int64_t> all;
    std::vector<Tensor> element;
    while (it->Next(&element).value()) {
      EXPECT_EQ(element.size(), static_cast<size_t>(strategy.local_replicas()));
      for (const Tensor& part : element) {
        EXPECT_EQ(part.shape(), Shape({4}));
        for (const int64_t example : part.flat<int64_t>()) all.push_back(example);
      }
    }
    return all;
  });
  std::vector<int64_t> both = seen[0];
  both.insert(both.end(), seen[1].begin(), seen[1].end());
  EXPECT_EQ(both.size(), 3u * 16);
  std::map<int64_t, int> times;
  for (const int64_t example : both) ++times[example];
  EXPECT_GE(times.size(), 37u - 16);
  for (const auto& [example, count] : times) EXPECT_LE(count, 2) << example;
}

TEST(Strategy, FilesAreSharedOutByReplica) {
  const auto seen = OnWorkers<std::vector<int64_t>>(2, {.shards = 4}, [](Strategy& strategy) {
    const FlatMapFn open = [](const std::vector<Tensor>& file) -> StatusOr<Dataset> {
      const int64_t n = file[0].scalar<int64_t>();
      return Dataset::Range(100 * n, 100 * n + 4);
    };
    const Dataset batches =
        strategy.DistributeFiles(Dataset::Range(0, 7), open, {.batch_size = 8, .shuffle_buffer = -1, .repeat = 1})
            .value();
    const auto it = strategy.MakeIterator(batches).value();
    std::vector<int64_t> all;
    std::vector<Tensor> element;
    while (it->Next(&element).value()) {
      for (const Tensor& part : element) all.push_back(part.flat<int64_t>()[0]);
    }
    return all;
  });
  // Replica 3 has one file, so all end after its two batches.
  EXPECT_THAT(seen[0], ElementsAre(0, 100, 2, 102));
  EXPECT_THAT(seen[1], ElementsAre(200, 300, 202, 302));
}

// What each replica of all workers got: (numbers, how many of them count).
using Part = std::pair<std::vector<int64_t>, int64_t>;

std::vector<std::vector<Part>> PartsOf(Strategy& strategy, const Dataset& batches) {
  const auto it = strategy.MakeIterator(batches, /*drop_remainder=*/false).value();
  std::vector<std::vector<Part>> steps;
  std::vector<Tensor> element;
  while (it->Next(&element).value()) {
    EXPECT_EQ(element.size(), 2u * static_cast<size_t>(strategy.local_replicas()));
    std::vector<Part>& parts = steps.emplace_back();
    for (size_t i = 0; i < element.size(); i += 2) {
      const absl::Span<const int64_t> numbers = element[i].flat<int64_t>();
      parts.push_back({{numbers.begin(), numbers.end()}, element[i + 1].scalar<int64_t>()});
    }
  }
  return steps;
}

TEST(Strategy, TheRemainderIsAPartialBatch) {
  const auto seen = OnWorkers<std::vector<std::vector<Part>>>(2, {.shards = 4}, [](Strategy& strategy) {
    const Dataset batches =
        strategy
            .DistributeDataset(Dataset::Range(0, 15),
                               {.batch_size = 6, .shuffle_buffer = -1, .repeat = 1, .drop_remainder = false})
            .value();
    EXPECT_EQ(batches.Cardinality(), 3);
    return PartsOf(strategy, batches);
  });
  // Replica r has the examples r, r + 4, ... of a batch; 3 of them are left in the last one, none for replica 3.
  using Step = std::vector<Part>;
  EXPECT_THAT(seen[0], ElementsAre(Step{{{0, 4}, 2}, {{1, 5}, 2}}, Step{{{6, 10}, 2}, {{7, 11}, 2}},
                                   Step{{{12}, 1}, {{13}, 1}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{{2}, 1}, {{3}, 1}}, Step{{{8}, 1}, {{9}, 1}}, Step{{{14}, 1}, {{12}, 0}}));
}

TEST(Strategy, FilesOfDifferentLengthsAreReadToTheEnd) {
  const auto seen = OnWorkers<std::vector<std::vector<Part>>>(2, {.shards = 4}, [](Strategy& strategy) {
    // File n has n + 1 examples.
    const FlatMapFn open = [](const std::vector<Tensor>& file) -> StatusOr<Dataset> {
      const int64_t n = file[0].scalar<int64_t>();
      return Dataset::Range(100 * n, 100 * n + n + 1);
    };
    return PartsOf(strategy,
                   strategy
                       .DistributeFiles(Dataset::Range(0, 4), open,
                                        {.batch_size = 8, .shuffle_buffer = -1, .repeat = 1, .drop_remainder = false})
                       .value());
  });
  using Step = std::vector<Part>;
  EXPECT_THAT(seen[0], ElementsAre(Step{{{0}, 1}, {{100, 101}, 2}}, Step{{{0}, 0}, {{100, 101}, 0}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{{200, 201}, 2}, {{300, 301}, 2}}, Step{{{202}, 1}, {{302, 303}, 2}}));
}

// Means and sums over 10 numbers in batches of 7, so 3 replicas have nothing in the last one.
TEST(Strategy, MeansAndSumsOfPartialBatchesAreThoseOfTheExamples) {
  for (const int workers : {1, 2, 3}) {
    const auto results = OnWorkers<std::vector<float>>(workers, {.shards = 6}, [](Strategy& strategy) {
      const Scope scope = strategy.NewScope();
      const ReplicaInputs batch = strategy.MakeInputs(scope, 7, {{DType::kInt64, {}}}, /*drop_remainder=*/false);
      std::vector<Var> seen;
      const std::vector<PerReplica> each =
          strategy.Run(scope, batch, Strategy::ReplicaListFn([&](const Scope& r, const std::vector<Output>& in) {
                         const Output x = ops::Cast(r, in[0], DType::kFloat);
                         const Var mean(r, "mean", Shape(), init::Zeros(),
                                        {.trainable = false, .aggregation = VariableAggregation::kMean});
                         const Var count(r, "count", Shape(), init::Zeros(),
                                         {.trainable = false,
                                          .aggregation = VariableAggregation::kSum,
                                          .synchronization = VariableSynchronization::kOnRead});
                         if (seen.empty()) seen = {mean, count};
                         AddUpdateOp(mean.Assign(r, ops::Mean(r, x, std::vector<int32_t>{0})));
                         AddUpdateOp(count.AssignAdd(r, ops::Cast(r, ops::Size(r, x), DType::kFloat)));
                         return std::vector<Output>{ops::Mean(r, x, std::vector<int32_t>{0}),
                                                    ops::Sum(r, in[0], std::vector<int32_t>{0})};
                       }));
      const Var w(scope, "w", 0.0f);
      PerReplica loss = each[0];
      for (size_t i = 0; i < loss.values.size(); ++i) loss.values[i] = loss.values[i] * w;
      const Output mean = strategy.Reduce(scope, ReplicaReduction::kMean, each[0]);
      const Output sum = strategy.Reduce(scope, ReplicaReduction::kSum, each[1]);
      optimizers::GradientDescent descent({.learning_rate = 1});
      const Operation train = strategy.Minimize(scope, descent, loss);
      const std::vector<Output> ends = {w, strategy.ReadVariable(scope, seen[0]),
                                        strategy.ReadVariable(scope, seen[1])};
      std::vector<float> told;
      const auto session = strategy.TrainingSession(scope);
      EXPECT_TRUE(session.ok()) << session.status();
      if (!session.ok()) return told;
      const Dataset batches =
          strategy
              .DistributeDataset(Dataset::Range(1, 11),
                                 {.batch_size = 7, .shuffle_buffer = -1, .repeat = 1, .drop_remainder = false})
              .value();
      const auto it = strategy.MakeIterator(batches).value();
      std::vector<Tensor> element;
      while (it->Next(&element).value()) {
        ClientSession::Feeds feeds;
        for (size_t i = 0; i < element.size(); ++i) feeds.emplace_back(batch.feeds[i], element[i]);
        const auto step = (*session)->Run(feeds, {mean, sum}, {train});
        EXPECT_TRUE(step.ok()) << step.status();
        if (!step.ok()) return told;
        told.push_back((*step)[0].scalar<float>());
        told.push_back(static_cast<float>((*step)[1].scalar<int64_t>()));
      }
      const Tensors read = (*session)->raw_session()->Run(ends).value();
      for (const Tensor& end : read) told.push_back(end.scalar<float>());
      return told;
    });
    // 1 to 7, then 8 to 10: mean and sum of each step; the sum of the means, the last mean, the number of examples.
    for (const std::vector<float>& told : results)
      EXPECT_THAT(told, ElementsAre(4, 28, 9, 27, -13, 9, 10)) << workers << " workers";
  }
}

TEST(Strategy, WhatNeedsOtherInputsIsNoPartOfATrainingStep) {
  OnWorkers<Status>(2, {}, [](Strategy& strategy) {
    Line line{.scope = strategy.NewScope()};
    const auto model = [](const Scope& replica, const std::vector<Output>& in) {
      const Output y = layers::Dense(replica, in[0], 1);
      return ops::Mean(replica, ops::Square(replica, y - 1.0), std::vector<int32_t>{0, 1});
    };
    line.batch = strategy.MakeInputs(line.scope, 8, {{DType::kFloat, {2}}});
    const ReplicaInputs other = strategy.MakeInputs(line.scope, 8, {{DType::kFloat, {2}}});
    const PerReplica loss = strategy.Run(line.scope, line.batch, model);
    const PerReplica tested = strategy.Run(line.scope, other, model);
    line.loss = strategy.Reduce(line.scope, ReplicaReduction::kMean, loss);
    const Output test = strategy.Reduce(line.scope, ReplicaReduction::kMean, tested);
    optimizers::GradientDescent descent({.learning_rate = 0.1});
    line.train = strategy.Minimize(line.scope, descent, loss);
    const auto session = strategy.TrainingSession(line.scope);
    EXPECT_TRUE(session.ok()) << session.status();
    ClientSession::Feeds feeds, test_feeds;
    for (size_t i = 0; i < line.batch.feeds.size(); ++i) {
      feeds.emplace_back(line.batch.feeds[i], Ones(strategy)[i]);
      test_feeds.emplace_back(other.feeds[i], Ones(strategy)[i]);
    }
    // The training's own mean is part of its step, though nobody fetches it here; the other one is not.
    if (strategy.is_chief()) {
      EXPECT_TRUE((*session)->Run(feeds, {line.loss}, {line.train}).ok());
    } else {
      EXPECT_TRUE((*session)->Run(feeds, {}, {line.train}).ok());
    }
    EXPECT_TRUE((*session)->Run(test_feeds, {test}, {}).ok());
    // One that does something else is named.
    const Status differs = strategy.is_chief() ? (*session)->Run(test_feeds, {test}, {}).status()
                                               : (*session)->Run(feeds, {}, {line.train}).status();
    EXPECT_EQ(differs.code(), absl::StatusCode::kInvalidArgument) << differs;
    EXPECT_THAT(std::string(differs.message()), HasSubstr("task:1")) << differs;
    return differs;
  });
}

TEST(Strategy, AnExchangeInALoopIsAnError) {
  const Scope scope = Scope::NewRoot();
  const ReplicaLayout layout{.num_workers = 2, .owners = {0, 1}};
  While(
      scope, {ops::Const(scope, 1.0f)}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 10.0f; },
      [&](const Scope& s, const std::vector<Output>& v) {
        const std::vector<Output> sum = SumOverReplicas(s, layout, {.key = "total", .values = {{v[0]}}});
        return sum.empty() ? v : sum;
      });
  EXPECT_EQ(scope.status().code(), absl::StatusCode::kUnimplemented) << scope.status();
  EXPECT_THAT(std::string(scope.status().message()),
              HasSubstr("'total' is exchanged between workers inside of a loop"));
}

TEST(Strategy, ASessionOutsideOfAGroupSaysSo) {
  const Scope scope = Scope::NewRoot();
  const ReplicaLayout layout{.num_workers = 2, .owners = {0, 1}};
  const Output x = ops::Const(scope, 1.0f);
  const std::vector<Output> sums = SumOverReplicas(scope, layout, {.key = "x", .values = {{x}}});
  ASSERT_EQ(sums.size(), 1u) << scope.status();
  ClientSession session = ClientSession::Create(scope).value();
  const Status status = session.Run({sums[0]}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not belong to a group of workers"));
}

TEST(MultiWorkerMirrored, AllWorkersGetTheTextOfTheChief) {
  const std::vector<std::string> texts = OnWorkers<std::string>(3, {.shards = 3}, [](Strategy& strategy) {
    EXPECT_EQ(strategy.TextOfChief(strategy.is_chief() ? "" : "mine").value(), "");
    return strategy.TextOfChief(absl::StrCat("of worker ", strategy.worker_index())).value();
  });
  EXPECT_EQ(texts, std::vector<std::string>(3, "of worker 0"));
  EXPECT_EQ(OneDeviceStrategy().value()->TextOfChief("own").value(), "own");
}

}  // namespace
}  // namespace millrace
