// Variables that are synchronised on read.
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "millrace/api/layers.h"
#include "millrace/api/operators.h"
#include "millrace/api/ops/all_ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/strategy/strategy_testing.h"
#include "millrace/train/checkpoint/checkpoint_reader.h"
#include "millrace/train/hooks/hooks.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

VarOptions OnRead(VariableAggregation how, DType dtype = DType::kFloat) {
  return {.dtype = dtype, .trainable = false, .aggregation = how, .synchronization = VariableSynchronization::kOnRead};
}

TEST(OnRead, EachReplicaHasItsOwnValueAndOthersReadTheAggregate) {
  const auto strategy = MirroredStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 4}).value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 4, {{DType::kFloat, {}}});
  std::vector<Operation> added;
  std::vector<Var> variables;
  std::vector<Output> inside;
  strategy->Run(scope, batch, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& in) {
                  const Output value = ops::Sum(replica, in[0], std::vector<int32_t>{0});
                  for (const auto& [name, how] : {std::pair("sum", VariableAggregation::kSum),
                                                  {"mean", VariableAggregation::kMean},
                                                  {"first", VariableAggregation::kFirstReplica}}) {
                    const Var variable(replica, name, Shape(), init::Ones(), OnRead(how));
                    added.push_back(variable.AssignAdd(replica, value));
                    if (variables.size() < 3) variables.push_back(variable);
                    if (how == VariableAggregation::kSum) inside.push_back(variable.Read(replica));
                  }
                  return value;
                }));
  std::vector<Output> outside;
  for (const Var& variable : variables) outside.push_back(strategy->ReadVariable(scope, variable));
  ASSERT_TRUE(scope.ok()) << scope.status();
  ClientSession session =
      ClientSession::Create(scope, strategy->MakeSessionOptions({.cpu_devices = 2}).value()).value();
  ASSERT_EQ(session.Run(GlobalVariablesInitializer(scope)), absl::OkStatus());
  ASSERT_EQ(session.Run(LocalVariablesInitializer(scope)), absl::OkStatus());
  const auto values = [&](const std::vector<Output>& outputs) {
    std::vector<float> result;
    const Tensors read = session.Run(outputs).value();
    for (const Tensor& tensor : read) result.push_back(tensor.scalar<float>());
    return result;
  };
  EXPECT_THAT(values(outside), ElementsAre(1, 1, 1));
  ClientSession::Feeds feeds;
  for (size_t i = 0; i < 4; ++i)
    feeds.emplace_back(batch.feeds[i], Tensor::Of<float>({static_cast<float>(10 * (i + 1))}));
  ASSERT_TRUE(session.Run(feeds, {}, added).ok());
  EXPECT_THAT(values(inside), ElementsAre(11, 20, 30, 40));
  EXPECT_THAT(values(outside), ElementsAre(101, 26, 11));
  // Only one variable of each is saved; the copies are local.
  std::vector<std::string> names;
  for (const Var& variable : GlobalVariables(scope)) names.push_back(variable.var_name());
  EXPECT_THAT(names, ElementsAre("global_step", "sum", "mean", "first"));
  EXPECT_EQ(LocalVariables(scope).size(), 12u);
  EXPECT_THAT(LocalVariables(scope)[2].handle().node()->requested_device(), HasSubstr("CPU:1"));
}

TEST(OnRead, CopiesOfALocalVariableInitialiseThemselves) {
  const auto strategy = OneDeviceStrategy({.shards = 4}).value();
  const Scope scope = strategy->NewScope();
  const ReplicaInputs batch = strategy->MakeInputs(scope, 4, {{DType::kFloat, {}}});
  Var count;
  strategy->Run(scope, batch, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& in) {
                  VarOptions options = OnRead(VariableAggregation::kSum);
                  options.local = true;
                  count = Var(replica, "count", Shape(), init::Ones(), options);
                  return in[0];
                }));
  const Output total = strategy->ReadVariable(scope, count);
  const Operation init = LocalVariablesInitializer(scope);
  ASSERT_TRUE(scope.ok()) << scope.status();
  ClientSession session = ClientSession::Create(scope, strategy->MakeSessionOptions().value()).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  EXPECT_EQ(session.Run({total}).value()[0].scalar<float>(), 1);
  ASSERT_EQ(GlobalVariables(scope).size(), 1u);  // the global step
}

TEST(OnRead, WithoutAnAggregationItIsAnError) {
  const auto strategy = OneDeviceStrategy().value();
  const Scope scope = strategy->NewScope();
  const Var variable(scope, "count", Shape(), init::Zeros(), OnRead(VariableAggregation::kNone));
  EXPECT_EQ(scope.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scope.status().message()), HasSubstr("count is synchronised on read and has no aggregation"));
}

// What a training counts: the examples, their mean, and the steps of replica 0.
struct Counts {
  Status status = absl::UnknownError("not run");
  int64_t examples = 0;
  double mean = 0;
  float first = 0;
};

// Trains from where the checkpoint is to step `last`. Each global batch has 8 examples, whose value is the step.
Status Count(Strategy& strategy, const std::string& folder, int64_t last, Counts* counts) {
  const Scope scope = strategy.NewScope();
  const ReplicaInputs batch = strategy.MakeInputs(scope, 8, {{DType::kFloat, {1}}});
  std::vector<Var> variables;
  const PerReplica loss = strategy.Run(
      scope, batch, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& in) {
        const Var examples(replica, "examples", Shape(), init::Zeros(),
                           OnRead(VariableAggregation::kSum, DType::kInt64));
        const Var mean(replica, "mean", Shape(), init::Zeros(), OnRead(VariableAggregation::kMean, DType::kDouble));
        const Var first(replica, "first", Shape(), init::Zeros(), OnRead(VariableAggregation::kFirstReplica));
        AddUpdateOp(examples.AssignAdd(replica, ops::Size(replica, in[0], {.out_type = DType::kInt64})));
        const Output value = ops::Mean(replica, in[0], {0, 1});
        AddUpdateOp(mean.AssignAdd(replica, ops::Cast(replica, value, DType::kDouble)));
        AddUpdateOp(first.AssignAdd(replica, 1.0));
        if (variables.empty()) variables = {examples, mean, first};
        const Output y = layers::Dense(replica, in[0], 1);
        return ops::Mean(replica, ops::Square(replica, y), {0, 1});
      }));
  optimizers::GradientDescent descent({.learning_rate = 0.1});
  const Operation train = strategy.Minimize(scope, descent, loss);
  std::vector<Output> read;
  for (const Var& variable : variables) read.push_back(strategy.ReadVariable(scope, variable));
  auto stop = std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = last});
  MR_ASSIGN_OR_RETURN(const auto session, strategy.TrainingSession(scope, {.checkpoint_dir = folder, .hooks = {stop}}));
  while (!session->ShouldStop()) {
    MR_ASSIGN_OR_RETURN(const Tensors step, session->raw_session()->Run({GlobalStep(scope)}));
    Tensor ones(DType::kFloat, {8 / strategy.num_replicas(), 1});
    for (float& value : ones.flat<float>()) value = static_cast<float>(step[0].scalar<int64_t>());
    ClientSession::Feeds feeds;
    for (const Output& feed : batch.feeds) feeds.emplace_back(feed, ones);
    MR_RETURN_IF_ERROR(session->Run(feeds, {}, {train}).status());
  }
  MR_ASSIGN_OR_RETURN(const Tensors told, session->raw_session()->Run(read));
  counts->examples = told[0].scalar<int64_t>();
  counts->mean = told[1].scalar<double>();
  counts->first = told[2].scalar<float>();
  return session->Close();
}

TEST(OnRead, ATrainingGoesOnWithTheAggregateOnAnotherNumberOfWorkers) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/on_read_", getpid());
  std::filesystem::remove_all(folder);
  const auto to = [&](int workers, int64_t last) {
    return OnWorkers<Counts>(workers, {.shards = 4}, [&](Strategy& strategy) {
      Counts counts;
      counts.status = Count(strategy, folder, last, &counts);
      return counts;
    });
  };
  for (const auto& [workers, last] : {std::pair<int, int64_t>(3, 4), {1, 6}, {2, 9}}) {
    for (const Counts& counts : to(workers, last)) {
      ASSERT_TRUE(counts.status.ok()) << workers << " workers: " << counts.status;
      EXPECT_EQ(counts.examples, 8 * last) << workers;
      EXPECT_EQ(counts.mean, static_cast<double>(last * (last - 1)) / 2) << workers;
      EXPECT_EQ(counts.first, static_cast<float>(last)) << workers;
    }
  }
  // One value, under the model's name.
  EXPECT_EQ(LoadVariable(folder, "examples").value().scalar<int64_t>(), 72);
  EXPECT_EQ(LoadVariable(folder, "examples/replica_0").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace millrace
