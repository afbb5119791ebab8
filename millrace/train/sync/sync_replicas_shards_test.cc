// Synchronous training in fixed order: the same bytes on any number of workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>

#include "millrace/train/sync/sync_workers_testing.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr int kShards = 8;
constexpr int64_t kRows = 3;  // of a shard

SyncReplicasOptions InShards(int workers, int index) {
  return {.replicas_to_aggregate = workers, .shards = kShards, .worker_index = index};
}

// A worker's graph: an embedding, whose gradients are rows, batch normalisation, dropout and Adam.
struct ShardWorker {
  ShardWorker(int index, const SyncReplicasOptions& options)
      : scope(Scope::NewRoot().WithDeviceFunction(
            ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = absl::StrCat("/job:worker/task:", index)}))),
        sync(std::make_unique<optimizers::Adam>(optimizers::AdamOptions{.learning_rate = 0.02}), options) {
    scope.SetRandomSeed(7);
    global_step = GlobalStep(scope);
    losses = sync.BuildShards(scope, [&](const Scope& s, int) {
      const Output rows = ops::Placeholder(s, DType::kInt32, {.shape = {kRows}});
      const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {kRows, 4}});
      feeds.push_back(rows);
      feeds.push_back(x);
      const Var table(s, "table", {10, 4}, init::GlorotUniform());
      Output h = layers::Dense(s, x + ops::Gather(s, table, rows), 8, {.activation = ops::Tanh});
      h = layers::Dropout(s, layers::BatchNorm(s, h, true), 0.2, true);
      return ops::Mean(s, ops::Square(s, layers::Dense(s, h, 1) - 1.0), {0, 1});
    });
    train = sync.Minimize(scope, losses, {.global_step = global_step});
    rewind = global_step.Assign(scope, Input(int64_t{1}));
    const std::vector<Node*> nodes(scope.graph()->nodes().begin(), scope.graph()->nodes().end());
    for (Node* node : nodes) {
      if (node->type() == "MillraceShardAccumulator")
        counts.push_back(Op(scope, "AccumulatorNumAccumulated", {Output(scope, node->output(0))}));
    }
  }

  // The batch of a step, which depends on the step and the shards alone.
  std::vector<Tensor> Batch(int64_t step) const {
    std::vector<Tensor> batch;
    const ShardRange local = sync.local_shards();
    for (int shard = local.first; shard < local.last; ++shard) {
      Tensor rows(DType::kInt32, Shape({kRows})), x(DType::kFloat, Shape({kRows, 4}));
      const int64_t from = step * kShards + shard;
      // The last row occurs twice.
      for (int64_t i = 0; i < kRows; ++i) rows.data<int32_t>()[i] = static_cast<int32_t>((from * 7 + i / 2 * 3) % 10);
      for (int64_t i = 0; i < kRows * 4; ++i) x.data<float>()[i] = std::sin(0.37f * static_cast<float>(from * 12 + i));
      batch.push_back(rows);
      batch.push_back(x);
    }
    return batch;
  }
  ClientSession::Feeds Feeds(int64_t step) const {
    const std::vector<Tensor> batch = Batch(step);
    ClientSession::Feeds result;
    for (size_t i = 0; i < batch.size(); ++i) result.emplace_back(feeds[i], batch[i]);
    return result;
  }

  Scope scope;
  SyncReplicasOptimizer sync;
  Var global_step;
  std::vector<Output> feeds, losses;
  Operation train, rewind;     // to step 1
  std::vector<Output> counts;  // of each accumulator
};

using Weights = std::map<std::string, std::string>;  // the bytes of each variable

// Trains to global step `last` and returns the weights.
Weights TrainTo(const Server& server, int index, const SyncReplicasOptions& options, int64_t last,
                const std::string& checkpoints = "") {
  ShardWorker worker(index, options);
  const bool is_chief = index == 0;
  auto session = MonitoredTrainingSession(
      worker.scope, {.master = server.target(),
                     .is_chief = is_chief,
                     .checkpoint_dir = checkpoints,
                     .hooks = {worker.sync.MakeSessionRunHook(is_chief),
                               std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = last})}});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  int64_t step = (*session)->raw_session()->Run({worker.sync.local_step()}).value()[0].scalar<int64_t>();
  for (; !(*session)->ShouldStop(); ++step) {
    const Status status = (*session)->Run(worker.Feeds(step), {}, {worker.train}).status();
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return {};
  }
  EXPECT_EQ(step, last);
  Weights weights;
  for (const Var& variable : GlobalVariables(worker.scope)) {
    const Tensor value = (*session)->raw_session()->Run({variable}).value()[0];
    weights[variable.var_name()] = std::string(static_cast<const char*>(value.raw_data()), value.TotalBytes());
  }
  EXPECT_EQ((*session)->Close(), absl::OkStatus());
  return weights;
}

// A training of `workers` workers with one ps.
Weights TrainOn(int workers, int64_t last, const std::string& checkpoints = "") {
  const auto servers = StartServers({{"ps", 1}, {"worker", workers}});
  std::vector<Weights> weights(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int i = workers - 1; i >= 0; --i) {
    threads.emplace_back(
        [&, i] { weights[i] = TrainTo(*servers[1 + i], i, InShards(workers, i), last, i == 0 ? checkpoints : ""); });
  }
  for (std::thread& thread : threads) thread.join();
  return weights[0];
}

void ExpectSame(const Weights& got, const Weights& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (const auto& [name, bytes] : wanted)
    EXPECT_TRUE(got.at(name) == bytes) << what << ": variable " << name << " has other bytes";
}

constexpr int64_t kSteps = 10;
const Weights& OfOneWorker() {
  static const Weights weights = TrainOn(1, kSteps);
  return weights;
}

TEST(FixedOrderReplicas, WeightsHaveTheSameBytesOnAnyNumberOfWorkers) {
  EXPECT_TRUE(OfOneWorker().count("batch_normalization/moving_mean"));
  EXPECT_TRUE(OfOneWorker().count("table"));
  EXPECT_NE(TrainOn(1, 2).at("table"), OfOneWorker().at("table"));
  for (const int workers : {2, 3, 4, 5, 8})
    ExpectSame(TrainOn(workers, kSteps), OfOneWorker(), absl::StrCat(workers, " workers"));
}

TEST(FixedOrderReplicas, ATrainingGoesOnWithAnotherNumberOfWorkers) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/fixed_order_replicas_", getpid());
  std::filesystem::remove_all(folder);
  TrainOn(3, 4, folder);
  TrainOn(1, 6, folder);
  ExpectSame(TrainOn(5, kSteps, folder), OfOneWorker(), "3, 1 and 5 workers");
  std::filesystem::remove_all(folder);
}

// Two workers whose training steps the test makes one by one.
struct TwoWorkers {
  TwoWorkers() : servers(StartServers({{"ps", 1}, {"worker", 2}})) {
    for (int i : {0, 1}) Begin(i);
  }
  void Begin(int i) {
    workers[i] = std::make_unique<ShardWorker>(i, InShards(2, i));
    ShardWorker& worker = *workers[i];
    const Operation init = GlobalVariablesInitializer(worker.scope);
    sessions[i] = std::make_unique<ClientSession>(
        ClientSession::Create(worker.scope, {.target = servers[1 + i]->target()}).value());
    if (i == 0 && !has_values) {
      ASSERT_EQ(sessions[0]->Run(init), absl::OkStatus());
    }
    has_values = true;
    if (i == 0) {
      ASSERT_EQ(sessions[0]->Run(worker.sync.chief_init_op()), absl::OkStatus());
    }
    ASSERT_EQ(sessions[i]->Run(worker.sync.local_step_init_op()), absl::OkStatus());
  }
  void End(int i) { ASSERT_EQ(sessions[i]->session().Close(), absl::OkStatus()); }
  Status Train(int i) {
    MR_ASSIGN_OR_RETURN(const Tensors step, sessions[i]->Run({workers[i]->sync.local_step()}));
    return sessions[i]->Run(workers[i]->Feeds(step[0].scalar<int64_t>()), {}, {workers[i]->train}).status();
  }
  Status Update() { return sessions[0]->Run(workers[0]->sync.update_op()); }
  // One step of both.
  void TrainBoth() {
    std::thread other([&] { EXPECT_EQ(Train(1), absl::OkStatus()); });
    std::thread update([&] { EXPECT_EQ(Update(), absl::OkStatus()); });
    EXPECT_EQ(Train(0), absl::OkStatus());
    other.join();
    update.join();
  }
  // Returns when every accumulator has that many shards.
  void AwaitGiven(int32_t shards) {
    while (true) {
      const Tensors counts = sessions[0]->Run(workers[0]->counts).value();
      if (std::all_of(counts.begin(), counts.end(), [&](const Tensor& n) { return n.scalar<int32_t>() >= shards; }))
        return;
      std::this_thread::yield();
    }
  }
  Weights Ends() {
    Weights weights;
    for (const Var& variable : GlobalVariables(workers[0]->scope)) {
      const Tensor value = sessions[0]->Run({variable}).value()[0];
      weights[variable.var_name()] = std::string(static_cast<const char*>(value.raw_data()), value.TotalBytes());
    }
    return weights;
  }

  std::vector<std::unique_ptr<Server>> servers;
  bool has_values = false;
  std::unique_ptr<ShardWorker> workers[2];
  std::unique_ptr<ClientSession> sessions[2];
};

TEST(FixedOrderReplicas, AWorkerThatDiedAfterItContributedIsReplacedAndNothingCountsTwice) {
  TwoWorkers two;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == 4) {
      std::thread dying([&] { EXPECT_FALSE(two.Train(1).ok()); });
      two.AwaitGiven(kShards / 2);
      two.End(1);
      dying.join();
      two.Begin(1);
    }
    two.TrainBoth();
  }
  EXPECT_GT(two.sessions[0]->Run({two.workers[0]->sync.num_dropped()}).value()[0].scalar<int64_t>(), 0);
  ExpectSame(two.Ends(), OfOneWorker(), "a worker was replaced");
}

TEST(FixedOrderReplicas, AChiefThatDiedBeforeItAppliedWhatItHadTakenIsReplaced) {
  TwoWorkers two;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step != 4) {
      two.TrainBoth();
      continue;
    }
    std::thread first([&] { EXPECT_FALSE(two.Train(0).ok()); });
    std::thread second([&] { EXPECT_EQ(two.Train(1), absl::OkStatus()); });
    // Some of the sums, as of an update that gets no further.
    std::vector<Output> taken;
    for (Node* node : two.workers[0]->scope.graph()->nodes()) {
      if (node->type() == "AccumulatorTakeGradient") taken.emplace_back(two.workers[0]->scope, node->output(0));
    }
    ASSERT_GT(taken.size(), 3u);
    taken.resize(3);
    two.AwaitGiven(kShards);
    ASSERT_TRUE(two.sessions[0]->Run(taken).ok());
    two.End(0);
    first.join();
    two.Begin(0);
    EXPECT_EQ(two.Update(), absl::OkStatus());
    second.join();
    EXPECT_EQ(two.Train(0), absl::OkStatus());  // too late for the step, and no matter
  }
  ExpectSame(two.Ends(), OfOneWorker(), "the chief was replaced");
}

TEST(FixedOrderReplicas, AWorkerWhosePsWasStartedAnewEndsAndSaysWhy) {
  auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  ASSERT_EQ(servers[0]->task().job, "ps");
  const ClusterSpec cluster = servers[0]->cluster();
  ShardWorker worker(0, InShards(1, 0));
  const auto session = MonitoredTrainingSession(
      worker.scope, {.master = servers[1]->target(), .hooks = {worker.sync.MakeSessionRunHook(true)}});
  ASSERT_TRUE(session.ok()) << session.status();
  for (int64_t step = 0; step < 3; ++step)
    ASSERT_EQ((*session)->Run(worker.Feeds(step), {}, {worker.train}).status(), absl::OkStatus());
  servers[0].reset();
  servers[0] = Server::Start(cluster, "ps", 0).value();
  const Status end = (*session)->Run(worker.Feeds(3), {}, {worker.train}).status();
  EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("went back, because a parameter server was started anew"));
  EXPECT_TRUE((*session)->ShouldStop());
  // One that is started again trains from where the variables are.
  ExpectSame(TrainTo(*servers[1], 0, InShards(1, 0), kSteps), OfOneWorker(), "after the restart");
}

TEST(FixedOrderReplicas, AWorkerThatIsAheadOfItsChiefEndsAndSaysWhy) {
  TwoWorkers two;
  two.End(1);
  ShardWorker worker(1, InShards(2, 1));
  const auto session = MonitoredTrainingSession(
      worker.scope,
      {.master = two.servers[2]->target(), .is_chief = false, .hooks = {worker.sync.MakeSessionRunHook(false)}});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto train = [&](int64_t step) { return (*session)->Run(worker.Feeds(step), {}, {worker.train}).status(); };
  for (int64_t step = 0; step < 3; ++step) {
    std::thread other([&] { EXPECT_EQ(train(step), absl::OkStatus()); });
    std::thread update([&] { EXPECT_EQ(two.Update(), absl::OkStatus()); });
    EXPECT_EQ(two.Train(0), absl::OkStatus());
    other.join();
    update.join();
  }
  Status end;
  std::thread ahead([&] { end = train(3); });
  two.AwaitGiven(kShards / 2);
  // As a chief does that restores a checkpoint of step 1.
  ASSERT_EQ(two.sessions[0]->Run(two.workers[0]->rewind), absl::OkStatus());
  ASSERT_EQ(two.sessions[0]->Run(two.workers[0]->sync.chief_init_op()), absl::OkStatus());
  ahead.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("went back from step 3 to step 1"));
}

TEST(FixedOrderReplicas, AWorkerThatEndsEarlyEndsTheTrainingOfAll) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 3}});
  std::vector<Status> ends(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      ShardWorker worker(i, InShards(3, i));
      auto session = MonitoredTrainingSession(
          worker.scope,
          {.master = servers[1 + i]->target(), .is_chief = i == 0, .hooks = {worker.sync.MakeSessionRunHook(i == 0)}});
      ASSERT_TRUE(session.ok()) << session.status();
      for (int64_t step = 0; ends[i].ok() && !(*session)->ShouldStop() && (i != 1 || step < 5); ++step)
        ends[i] = (*session)->Run(worker.Feeds(step), {}, {worker.train}).status();
      EXPECT_EQ((*session)->Close(), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends[1], absl::OkStatus());
  for (const int i : {0, 2}) {
    EXPECT_EQ(ends[i].code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(ends[i].message()), HasSubstr("ended at step 5: worker 1 of 3 has ended"));
  }
}

TEST(FixedOrderReplicas, AMissingWorkerIsNamedByItsShards) {
  TwoWorkers two;
  std::thread lonely([&] { EXPECT_FALSE(two.Train(0).ok()); });
  std::thread update([&] { EXPECT_FALSE(two.Update().ok()); });
  const auto waits = [&] {
    std::string text;
    for (const auto& server : two.servers) {
      for (const Wait& wait : server->worker()->task().waits()->List()) absl::StrAppend(&text, wait.what, "\n");
    }
    return text;
  };
  while (
      waits().find("4 of 8 shards (missing: 4, 5, 6, 7) for accumulator 'sync_replicas/table/grad_accum' at step 0") ==
          std::string::npos ||
      waits().find("the update of step 0 at step signal 'sync_replicas/step_signal'") == std::string::npos) {
    std::this_thread::yield();
  }
  two.End(0);
  lonely.join();
  update.join();
}

TEST(FixedOrderReplicas, MistakesAreTold) {
  const auto status = [](const SyncReplicasOptions& options) { return ShardWorker(0, options).scope.status(); };
  EXPECT_EQ(status(InShards(2, 1)), absl::OkStatus());
  EXPECT_THAT(status({.replicas_to_aggregate = 2, .total_num_replicas = 3, .shards = 8}).message(),
              HasSubstr("every worker takes part in every step"));
  EXPECT_THAT(status({.replicas_to_aggregate = 9, .shards = 8}).message(), HasSubstr("not enough for 9 workers"));
  EXPECT_THAT(status({.replicas_to_aggregate = 2, .shards = 8, .worker_index = 2}).message(),
              HasSubstr("there is no worker 2 of 2"));
  EXPECT_THAT(status({.replicas_to_aggregate = 2}).message(), HasSubstr("needs SyncReplicasOptions::shards"));

  Scope scope = Scope::NewRoot();
  Var w(scope, "w", 1.0f);
  SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{}),
                             {.shards = 2});
  sync.Minimize(scope, w * w, {.global_step = GlobalStep(scope)});
  EXPECT_THAT(scope.status().message(), HasSubstr("BuildShards makes the losses"));
  ShardWorker worker(0, InShards(2, 0));
  EXPECT_THAT(worker.sync.InitTokensOp(1).status().message(), HasSubstr("there are no tokens"));
}

}  // namespace
}  // namespace millrace
