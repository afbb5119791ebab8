#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/data/worker_batches.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"
#include "millrace/train/sync/sync_workers_testing.h"

namespace millrace {
namespace {

using testing::HasSubstr;

// Workers 0..n-1 of a cluster with `num_ps` parameter servers, initialised, the chief's updates running.
struct SyncCluster {
  SyncCluster(int num_workers, int replicas_to_aggregate, int num_tokens = 0, int num_ps = 1)
      : servers(StartServers({{"ps", num_ps}, {"worker", num_workers}})) {
    for (int i = 0; i < num_workers; ++i) {
      workers.push_back(std::make_unique<SyncWorker>(
          *servers[num_ps + i], i, num_ps,
          SyncReplicasOptions{.replicas_to_aggregate = replicas_to_aggregate, .total_num_replicas = num_workers}));
    }
    SyncWorker& chief = *workers[0];
    const Operation init_tokens = chief.sync.InitTokensOp(num_tokens).value();
    EXPECT_EQ(chief.session->Run(chief.init), absl::OkStatus());
    EXPECT_EQ(chief.session->Run(init_tokens), absl::OkStatus());
    EXPECT_EQ(chief.session->Run(chief.sync.chief_init_op()), absl::OkStatus());
    for (int i = 1; i < num_workers; ++i)
      EXPECT_EQ(workers[i]->session->Run(workers[i]->sync.local_step_init_op()), absl::OkStatus());
    updates = std::make_unique<ChiefUpdates>(&chief);
  }

  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::unique_ptr<SyncWorker>> workers;
  std::unique_ptr<ChiefUpdates> updates;
};

constexpr int kGlobalBatch = 16;

// The loss of each step, averaged over the workers.
std::vector<double> LossCurve(int num_workers, int steps, int num_ps) {
  SyncCluster cluster(num_workers, num_workers, /*num_tokens=*/0, num_ps);
  std::vector<std::vector<float>> losses(num_workers);
  std::vector<std::thread> threads;
  for (int i = 0; i < num_workers; ++i) {
    threads.emplace_back([&, i] {
      const auto [x, y] = SomeExamples();
      const Dataset mine =
          WorkerBatches(Dataset::FromTensors({x, y}).value(),
                        {.num_workers = num_workers, .worker_index = i, .batch_size = kGlobalBatch / num_workers});
      std::unique_ptr<DatasetIterator> batches = mine.MakeIterator().value();
      SyncWorker& worker = *cluster.workers[i];
      std::vector<Tensor> batch;
      for (int step = 0; step < steps; ++step) {
        ASSERT_TRUE(batches->Next(&batch).value());
        const StatusOr<Tensors> told =
            worker.session->Run({{worker.x, batch[0]}, {worker.y, batch[1]}}, {worker.loss}, {worker.train});
        if (!told.ok()) {
          ADD_FAILURE() << told.status();
          // The others would wait for this one.
          for (const auto& server : cluster.servers) server->Stop();
          return;
        }
        losses[i].push_back((*told)[0].scalar<float>());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> curve(steps);
  if (testing::Test::HasFailure()) return curve;
  EXPECT_EQ(cluster.workers[0]->Step(), steps);
  EXPECT_EQ(cluster.workers[0]->NumDropped(), 0);
  for (int step = 0; step < steps; ++step) {
    for (const auto& each : losses) curve[step] += each[step] / num_workers;
  }
  return curve;
}

TEST(SyncReplicasTest, OneTwoAndFourWorkersOnTheSameGlobalBatchHaveTheSameLossCurve) {
  constexpr int kSteps = 60;
  const std::vector<double> one = LossCurve(1, kSteps, 1), two = LossCurve(2, kSteps, 1),
                            four = LossCurve(4, kSteps, 2);
  EXPECT_LT(one[kSteps - 1], one[0] / 2);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(two[step], one[step], 1e-5) << "at step " << step;
    EXPECT_NEAR(four[step], one[step], 1e-5) << "at step " << step;
  }
}

// Runs `worker`'s training step on some examples.
Status TrainOnce(SyncWorker& worker) {
  const auto [x, y] = SomeExamples();
  return worker.session->Run({{worker.x, x}, {worker.y, y}}, {}, {worker.train}).status();
}

TEST(SyncReplicasTest, ABackupWorkerThatIsLateIsNotWaitedForAndItsGradientIsDroppedAndCounted) {
  SyncCluster cluster(3, 2);
  std::vector<std::thread> fast;
  for (int i : {0, 1}) {
    fast.emplace_back([&, i] {
      for (int step = 0; step < 20; ++step) ASSERT_EQ(TrainOnce(*cluster.workers[i]), absl::OkStatus());
    });
  }
  for (std::thread& thread : fast) thread.join();
  EXPECT_EQ(cluster.workers[0]->Step(), 20);
  EXPECT_EQ(cluster.workers[0]->NumDropped(), 0);  // nobody computed for nothing
  // The third comes with a gradient of step 0, and waits for the step after.
  std::thread late([&] { ASSERT_EQ(TrainOnce(*cluster.workers[2]), absl::OkStatus()); });
  while (cluster.workers[0]->NumDropped() == 0) std::this_thread::yield();
  EXPECT_EQ(cluster.workers[0]->NumDropped(), 1);
  EXPECT_EQ(cluster.workers[0]->Step(), 20);
  std::thread other([&] { ASSERT_EQ(TrainOnce(*cluster.workers[1]), absl::OkStatus()); });
  ASSERT_EQ(TrainOnce(*cluster.workers[0]), absl::OkStatus());
  other.join();
  late.join();
  EXPECT_EQ(cluster.workers[0]->Step(), 21);
  // From then on it is one of them.
  std::thread again([&] { ASSERT_EQ(TrainOnce(*cluster.workers[2]), absl::OkStatus()); });
  ASSERT_EQ(TrainOnce(*cluster.workers[0]), absl::OkStatus());
  again.join();
  EXPECT_EQ(cluster.workers[0]->Step(), 22);
  EXPECT_EQ(cluster.workers[0]->NumDropped(), 1);
}

// Both train until the global step is reached; then waiting workers are released.
void TrainUntil(SyncCluster& cluster, int64_t last_step) {
  std::atomic<bool> enough{false};
  std::vector<std::thread> threads;
  for (int i : {0, 1}) {
    threads.emplace_back([&, i] {
      // Runs that wait when the other has stopped are cancelled with the session.
      while (!enough.load()) {
        if (!TrainOnce(*cluster.workers[i]).ok()) return;
      }
    });
  }
  while (cluster.workers[0]->Step() < last_step) std::this_thread::yield();
  enough.store(true);
  cluster.updates->Stop();
  for (auto& worker : cluster.workers) EXPECT_EQ(worker->session->session().Close(), absl::OkStatus());
  for (std::thread& thread : threads) thread.join();
}

TEST(SyncReplicasTest, WithMoreReplicasThanWorkersEachGivesSeveralGradientsToAStep) {
  SyncCluster cluster(2, 4, /*num_tokens=*/2);
  TrainUntil(cluster, 200);
}

TEST(SyncReplicasTest, TokensToBeginWithLetWorkersAheadAndTrainingGoesOn) {
  SyncCluster cluster(2, 2, /*num_tokens=*/-1);
  TrainUntil(cluster, 200);
}

// The waits of the tasks.
std::string AllWaits(const SyncCluster& cluster) {
  std::string text;
  for (const auto& server : cluster.servers) {
    for (const Wait& wait : server->worker()->task().waits()->List())
      absl::StrAppend(&text, wait.node, " waits for ", wait.what, "\n");
  }
  return text;
}

TEST(SyncReplicasTest, AMissingWorkerIsSeenInWhatTheOthersWaitFor) {
  SyncCluster cluster(2, 2);
  std::thread lonely([&] { EXPECT_FALSE(TrainOnce(*cluster.workers[0]).ok()); });
  while (AllWaits(cluster).find("1 of 2 gradients for accumulator 'sync_replicas/dense/kernel/grad_accum' at step 0") ==
         std::string::npos) {
    std::this_thread::yield();
  }
  while (AllWaits(cluster).find("sync_replicas/sync_token_q") == std::string::npos) std::this_thread::yield();
  cluster.updates->Stop();
  EXPECT_EQ(cluster.workers[0]->session->session().Close(), absl::OkStatus());
  lonely.join();
}

TEST(SyncReplicasTest, AWorkerThatBeginsAnewMakesTheQuorumWholeAgain) {
  SyncCluster cluster(2, 2);
  const auto both = [&](int steps) {
    std::thread other([&] {
      for (int i = 0; i < steps; ++i) ASSERT_EQ(TrainOnce(*cluster.workers[1]), absl::OkStatus());
    });
    for (int i = 0; i < steps; ++i) ASSERT_EQ(TrainOnce(*cluster.workers[0]), absl::OkStatus());
    other.join();
  };
  both(3);
  // Worker 1 gives a gradient and ends before its token comes.
  std::thread dying([&] { EXPECT_FALSE(TrainOnce(*cluster.workers[1]).ok()); });
  while (AllWaits(cluster).find("1 of 2 gradients") == std::string::npos) std::this_thread::yield();
  while (AllWaits(cluster).find("sync_token_q") == std::string::npos) std::this_thread::yield();
  ASSERT_EQ(cluster.workers[1]->session->session().Close(), absl::OkStatus());
  dying.join();
  cluster.workers[1] =
      std::make_unique<SyncWorker>(*cluster.servers[2], 1, 1, SyncReplicasOptions{.replicas_to_aggregate = 2});
  ASSERT_EQ(cluster.workers[1]->session->Run(cluster.workers[1]->sync.local_step_init_op()), absl::OkStatus());
  std::atomic<bool> enough{false};
  std::vector<std::thread> threads;
  for (int i : {0, 1}) {
    threads.emplace_back([&, i] {
      while (!enough.load()) {
        if (!TrainOnce(*cluster.workers[i]).ok()) return;
      }
    });
  }
  while (cluster.workers[0]->Step() < 30) std::this_thread::yield();
  enough.store(true);
  cluster.updates->Stop();
  for (auto& worker : cluster.workers) EXPECT_EQ(worker->session->session().Close(), absl::OkStatus());
  for (std::thread& thread : threads) thread.join();
}

TEST(SyncReplicasTest, AChiefThatBeginsAnewAnswersGradientsThatWereTakenAndNotApplied) {
  SyncCluster cluster(2, 2);
  cluster.updates->Stop();
  // Both give a gradient and wait; an update takes them and gets no further.
  SyncWorker& chief = *cluster.workers[0];
  const Operation announced(chief.scope, chief.scope.graph()->FindNode("sync_replicas/announced"));
  ASSERT_FALSE(announced.empty());
  const Output open = ops::QueueSizeV2(chief.scope.ColocateWith(announced), announced.output(0));
  Output taken;
  for (Node* node : chief.scope.graph()->nodes()) {
    if (node->name() == "sync_replicas/dense/kernel/take_grad") taken = Output(chief.scope, node->output(0));
  }
  ASSERT_FALSE(taken.empty());
  std::thread first([&] { EXPECT_FALSE(TrainOnce(chief).ok()); });
  std::thread second([&] { ASSERT_EQ(TrainOnce(*cluster.workers[1]), absl::OkStatus()); });
  SyncWorker* const observer = cluster.workers[0].get();
  ASSERT_TRUE(observer->session->Run({taken}).ok());  // waits for both
  while (observer->session->Run({open}).value()[0].scalar<int32_t>() < 2) std::this_thread::yield();
  while (AllWaits(cluster).find("sync_token_q") == std::string::npos) std::this_thread::yield();
  ASSERT_EQ(chief.session->session().Close(), absl::OkStatus());
  first.join();
  // A new chief.
  cluster.workers[0] =
      std::make_unique<SyncWorker>(*cluster.servers[1], 0, 1, SyncReplicasOptions{.replicas_to_aggregate = 2});
  ASSERT_EQ(cluster.workers[0]->session->Run(cluster.workers[0]->sync.chief_init_op()), absl::OkStatus());
  cluster.updates = std::make_unique<ChiefUpdates>(cluster.workers[0].get());
  second.join();  // has got its token
  std::thread other([&] { ASSERT_EQ(TrainOnce(*cluster.workers[1]), absl::OkStatus()); });
  ASSERT_EQ(TrainOnce(*cluster.workers[0]), absl::OkStatus());
  other.join();
  EXPECT_GE(cluster.workers[0]->Step(), 1);
}

TEST(SyncReplicasTest, RowsOfAnEmbeddingAreGatheredToo) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Scope scope =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:0"}));
  Var table(scope, "table", {4, 2}, init::Zeros());
  const Output rows = ops::Placeholder(scope, DType::kInt32, {.shape = {-1}});
  const Output loss = ops::Sum(scope, ops::Gather(scope, table, rows), {0, 1});
  SyncReplicasOptimizer sync(
      std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1}),
      {.replicas_to_aggregate = 2, .total_num_replicas = 1});
  const Operation train = sync.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
  const Operation init = GlobalVariablesInitializer(scope), tokens = sync.InitTokensOp(1).value();
  ClientSession session = ClientSession::Create(scope, {.target = servers[1]->target()}).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  ASSERT_EQ(session.Run(tokens), absl::OkStatus());
  ASSERT_EQ(session.Run(sync.chief_init_op()), absl::OkStatus());
  // Two gradients: row 1 in both, row 3 in one. An accumulator's mean is over the gradients that have the row.
  ASSERT_TRUE(session.Run({{rows, Tensor::FromVector<int32_t>({1})}}, {}, {train}).ok());
  std::thread update([&] { ASSERT_EQ(session.Run(sync.update_op()), absl::OkStatus()); });
  ASSERT_TRUE(session.Run({{rows, Tensor::FromVector<int32_t>({1, 3})}}, {}, {train}).ok());
  update.join();
  EXPECT_THAT(Floats(session.Run({table}).value()[0]), testing::ElementsAre(0, 0, -1, -1, 0, 0, -1, -1));
}

// Trains under a MonitoredTrainingSession until global step `last`.
void TrainMonitored(const Server& server, int index, const SyncReplicasOptions& options, int64_t last) {
  SyncWorker worker(server, index, 1, options, /*open=*/false);
  const bool is_chief = index == 0;
  StatusOr<std::unique_ptr<MonitoredSession>> session = MonitoredTrainingSession(
      worker.scope, {.master = server.target(),
                     .is_chief = is_chief,
                     .hooks = {worker.sync.MakeSessionRunHook(is_chief, 0),
                               std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = last})}});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto [x, y] = SomeExamples();
  while (!(*session)->ShouldStop()) {
    const Status status = (*session)->Run({{worker.x, x}, {worker.y, y}}, {worker.loss}, {worker.train}).status();
    ASSERT_TRUE(status.ok()) << status;
  }
  // The hook may read the global step before the others' last updates: each worker may give one gradient too many.
  const int64_t step = (*session)->raw_session()->Run({worker.step_now}).value()[0].scalar<int64_t>();
  EXPECT_GE(step, last);
  EXPECT_LE(step, last + options.total_num_replicas / options.replicas_to_aggregate);
  EXPECT_EQ((*session)->Close(), absl::OkStatus());
}

TEST(SyncReplicasHookTest, WorkersThatStartInAnyOrderTrainToTheEndAndNoneIsLeftWaiting) {
  for (const int aggregate : {1, 2, 3}) {
    const auto servers = StartServers({{"ps", 1}, {"worker", 3}});
    const SyncReplicasOptions options = {.replicas_to_aggregate = aggregate, .total_num_replicas = 3};
    std::vector<std::thread> threads;
    for (const int i : {2, 1, 0}) threads.emplace_back([&, i] { TrainMonitored(*servers[1 + i], i, options, 30); });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(SyncReplicasHookTest, AMistakeIsToldByTheSession) {
  Scope scope = Scope::NewRoot();
  Var w(scope, "w", 1.0f);
  SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{}),
                             {.replicas_to_aggregate = 4, .total_num_replicas = 2});
  EXPECT_THAT(sync.MakeSessionRunHook(true)->Begin(scope).message(), HasSubstr("call Minimize"));
  sync.Minimize(scope, w * w, {.global_step = GlobalStep(scope)});
  const auto session = MonitoredTrainingSession(scope, {.hooks = {sync.MakeSessionRunHook(true, 0)}});
  EXPECT_THAT(session.status().message(), HasSubstr("2 workers need at least 2 to contribute"));
}

TEST(SyncReplicasTest, MistakesAreTold) {
  const auto status = [](SyncReplicasOptions options, bool with_step, bool twice = false) {
    Scope scope = Scope::NewRoot();
    Var w(scope, "w", 1.0f);
    SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{}),
                               options);
    MinimizeOptions minimize;
    if (with_step) minimize.global_step = GlobalStep(scope);
    sync.Minimize(scope, w * w, minimize);
    if (twice) sync.Minimize(scope, w * w, minimize);
    return scope.status();
  };
  EXPECT_EQ(status({.replicas_to_aggregate = 2}, true), absl::OkStatus());
  EXPECT_THAT(status({.replicas_to_aggregate = 0}, true).message(), HasSubstr("must be at least 1, but are 0"));
  EXPECT_THAT(status({.replicas_to_aggregate = 1, .total_num_replicas = -1}, true).message(), HasSubstr("and -1"));
  EXPECT_THAT(status({.replicas_to_aggregate = 1}, false).message(), HasSubstr("needs a global step"));
  EXPECT_THAT(status({.replicas_to_aggregate = 1}, true, true).message(), HasSubstr("makes one training op"));

  Scope scope = Scope::NewRoot();
  Var w(scope, "w", 1.0f);
  SyncReplicasOptimizer sync(std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{}),
                             {.replicas_to_aggregate = 4, .total_num_replicas = 2});
  EXPECT_THAT(sync.InitTokensOp().status().message(), HasSubstr("call Minimize"));
  sync.Minimize(scope, w * w, {.global_step = GlobalStep(scope)});
  EXPECT_THAT(sync.InitTokensOp(1).status().message(),
              HasSubstr("2 workers need at least 2 to contribute 4 gradients"));
  EXPECT_TRUE(sync.InitTokensOp(2).ok());
}

}  // namespace
}  // namespace millrace
