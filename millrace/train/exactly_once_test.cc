// Answers that are lost after a ps has changed its state: the repeated runs count once.
#include <atomic>

#include "millrace/api/op_call.h"
#include "millrace/cluster/step/step_transport_testing.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_proxy_testing.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/train/global_step.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

// A ps, and a worker whose connection to it is cut by the ps when it has applied an update, before it can answer.
class ExactlyOnceTest : public ::testing::Test {
 protected:
  ExactlyOnceTest() {
    const std::vector<int> ports = FreePorts(2);
    const ClusterSpec cluster = ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ports[0])}},
                                                 {"worker", {absl::StrCat("localhost:", ports[1])}}})
                                    .value();
    ps_ = Server::Start(cluster, "ps", 0).value();
    ps_->worker()->task().resources()->SetUpdateHook([this](const StateUpdate& update) {
      if (update.run.given() && armed_.exchange(false)) proxy_.Cut();
    });
    ServerOptions options;
    options.transport = transport_.get();
    worker_ = Server::Start(cluster, "worker", 0, options).value();
  }
  ~ExactlyOnceTest() override {
    session_.reset();
    worker_.reset();
    ps_.reset();
    transport_.reset();
  }

  void Open(const Scope& scope) {
    auto session = MonitoredTrainingSession(scope, {.master = worker_->target(), .max_wait = absl::Seconds(60)});
    ASSERT_EQ(session.status(), absl::OkStatus());
    session_ = *std::move(session);
  }
  // Makes `runs` runs; the connection is cut in every 80th one.
  void Train(const Operation& train, const Var& w, int runs) {
    for (int i = 0; i < runs; ++i) {
      if (i % 80 == 40) {
        ASSERT_TRUE(Await([&] {
          EXPECT_EQ(session_->raw_session()->Run({w}).status(), absl::OkStatus());
          return PeerOf(*worker_, *ps_).kind == "tcp";
        }));
        ++cuts_;
        armed_ = true;
      }
      ASSERT_EQ(session_->Run(train), absl::OkStatus());
    }
    EXPECT_FALSE(armed_);
    EXPECT_EQ(session_->sessions_made(), cuts_ + 1);
  }
  Tensor Fetch(const Output& output) { return session_->raw_session()->Run({output}).value()[0]; }

  // Queues of floats.
  static Output Queue(const Scope& scope, const std::string& name) {
    return Op(scope, "FIFOQueueV2", {}, {{"component_types", kFloats}, {"shared_name", name}});
  }
  static Output Dequeue(const Scope& scope, const Output& queue) {
    return Op(scope, "QueueDequeueV2", {queue}, {{"component_types", kFloats}});
  }
  // Enqueues 1 to `count`.
  static Operation Fill(const Scope& scope, const Output& queue, int count) {
    std::vector<float> numbers;
    for (int i = 1; i <= count; ++i) numbers.push_back(static_cast<float>(i));
    return AddOp(scope, "QueueEnqueueManyV2", {queue, InputList{Input(numbers)}});
  }
  static Output Size(const Scope& scope, const Output& queue) { return Op(scope, "QueueSizeV2", {queue}); }

  static inline const std::vector<DType> kFloats = {DType::kFloat};
  net::LaneProxy proxy_;
  std::unique_ptr<net::Transport> transport_ =
      net::NewLaneTransport(std::make_unique<net::SetUpThroughProxy>(net::NewGrpcTransport(), &proxy_), {});
  std::atomic<bool> armed_{false};
  int cuts_ = 0;
  std::unique_ptr<Server> ps_, worker_;
  std::unique_ptr<MonitoredSession> session_;
};

TEST_F(ExactlyOnceTest, ARepeatedRunUpdatesVariablesOnce) {
  CountingModel model = CountingModel::OfWorker(0);
  Open(model.scope);
  Train(model.train, model.w, 400);
  EXPECT_EQ(cuts_, 5);
  EXPECT_EQ(Fetch(model.w).scalar<float>(), 400);
  EXPECT_EQ(ReadGlobalStep(session_->raw_session(), model.global_step).value(), 400);
}

TEST_F(ExactlyOnceTest, ARepeatedRunTakesOneElementAndGivesOneGradient) {
  CountingModel model = CountingModel::OfWorker(0);
  const Scope s = model.scope.WithDevice("/job:ps/task:0/device:CPU:0");
  const Output queue = Queue(s, "numbers"), number = Dequeue(s, queue);
  const Operation fill = Fill(s, queue, 240);
  const Output accumulator =
      Op(s, "ConditionalAccumulator", {},
         {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "gradients"}});
  const Operation give = AddOp(s, "AccumulatorApplyGradient", {accumulator, int64_t{0}, number});
  const Output given = Op(s, "AccumulatorNumAccumulated", {accumulator});
  const Output left = Size(s, queue);
  const Operation train = Group(s, {model.w.AssignAdd(s, number), give, model.global_step.AssignAdd(s, int64_t{1})});
  ASSERT_EQ(s.status(), absl::OkStatus());
  Open(model.scope);
  ASSERT_EQ(session_->raw_session()->Run(fill), absl::OkStatus());
  Train(train, model.w, 240);
  EXPECT_EQ(cuts_, 3);
  EXPECT_EQ(Fetch(model.w).scalar<float>(), 240 * 241 / 2);
  EXPECT_EQ(Fetch(left).scalar<int32_t>(), 0);
  EXPECT_EQ(Fetch(given).scalar<int32_t>(), 240);
  EXPECT_EQ(ReadGlobalStep(session_->raw_session(), model.global_step).value(), 240);
}

// The runner's op is repeated on the ps, which the worker learns nothing of until it fails.
TEST_F(ExactlyOnceTest, AQueueRunnerMovesEachElementOnce) {
  CountingModel model = CountingModel::OfWorker(0);
  const Scope s = model.scope.WithDevice("/job:ps/task:0/device:CPU:0");
  const Output from = Queue(s, "from"), to = Queue(s, "to");
  const Operation fill = Fill(s, from, 240);
  const Operation move = AddOp(s.WithOpName("move"), "QueueEnqueueV2", {to, InputList{Dequeue(s, from)}});
  AddQueueRunner(model.scope, QueueRunner({.name = "mover", .enqueue_ops = {move}}));
  const Output left = Size(s, from), rest = Size(s, to);
  const Operation train = Group(s, {model.w.AssignAdd(s, Dequeue(s, to)), model.global_step.AssignAdd(s, int64_t{1})});
  ASSERT_EQ(s.status(), absl::OkStatus());
  Open(model.scope);
  ASSERT_EQ(session_->raw_session()->Run(fill), absl::OkStatus());
  Train(train, model.w, 240);
  EXPECT_EQ(cuts_, 3);
  EXPECT_EQ(Fetch(model.w).scalar<float>(), 240 * 241 / 2);
  EXPECT_EQ(Fetch(left).scalar<int32_t>(), 0);
  EXPECT_EQ(Fetch(rest).scalar<int32_t>(), 0);
}

// The chief's updates, its session's beginning and its own steps are cut.
TEST_F(ExactlyOnceTest, SynchronousTrainingAppliesEachGradientOnce) {
  const Scope s =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:0"}));
  const Var w(s, "w", 0.0f), global_step = GlobalStep(s);
  SyncReplicasOptimizer sync(
      std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1.0}),
      {.replicas_to_aggregate = 1, .total_num_replicas = 1});
  const Operation train = sync.Minimize(s, Op(s, "Identity", {w}), {.global_step = global_step});
  ASSERT_EQ(s.status(), absl::OkStatus());
  MonitoredTrainingSessionOptions options{.master = worker_->target(), .max_wait = absl::Seconds(60)};
  options.hooks = {std::shared_ptr<SessionRunHook>(sync.MakeSessionRunHook(/*is_chief=*/true, /*num_tokens=*/0))};
  auto session = MonitoredTrainingSession(s, options);
  ASSERT_EQ(session.status(), absl::OkStatus());
  session_ = *std::move(session);
  Train(train, w, 240);
  EXPECT_EQ(cuts_, 3);
  EXPECT_EQ(Fetch(w).scalar<float>(), -240);
  EXPECT_EQ(ReadGlobalStep(session_->raw_session(), global_step).value(), 240);
}

TEST_F(ExactlyOnceTest, SynchronousTrainingInFixedOrderAppliesEachGradientOnce) {
  const Scope s =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:0"}));
  const Var w(s, "w", 0.0f), global_step = GlobalStep(s);
  SyncReplicasOptimizer sync(
      std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1.0}),
      {.shards = 3});
  const std::vector<Output> losses =
      sync.BuildShards(s, [&](const Scope& shard, int) { return Op(shard, "Identity", {w}); });
  const Operation train = sync.Minimize(s, losses, {.global_step = global_step});
  ASSERT_EQ(s.status(), absl::OkStatus());
  MonitoredTrainingSessionOptions options{.master = worker_->target(), .max_wait = absl::Seconds(60)};
  options.hooks = {std::shared_ptr<SessionRunHook>(sync.MakeSessionRunHook(/*is_chief=*/true))};
  auto session = MonitoredTrainingSession(s, options);
  ASSERT_EQ(session.status(), absl::OkStatus());
  session_ = *std::move(session);
  Train(train, w, 240);
  EXPECT_EQ(cuts_, 3);
  EXPECT_EQ(Fetch(w).scalar<float>(), -240);
  EXPECT_EQ(ReadGlobalStep(session_->raw_session(), global_step).value(), 240);
  EXPECT_EQ(Fetch(sync.local_step()).scalar<int64_t>(), 240);
}

TEST_F(ExactlyOnceTest, ARunThatAHookMakesFailCountsOnce) {
  CountingModel model = CountingModel::OfWorker(0);
  auto hook = std::make_shared<RecordingHook>();
  auto session = MonitoredTrainingSession(
      model.scope, {.master = worker_->target(), .hooks = {hook}, .max_wait = absl::Seconds(60)});
  ASSERT_EQ(session.status(), absl::OkStatus());
  session_ = *std::move(session);
  ASSERT_EQ(session_->Run(model.train), absl::OkStatus());
  hook->fail_at = "after";
  hook->failure = Unavailable("a hook's server is lost");
  hook->fail_once = true;
  ASSERT_EQ(session_->Run(model.train), absl::OkStatus());
  EXPECT_EQ(session_->sessions_made(), 2);
  EXPECT_EQ(Fetch(model.w).scalar<float>(), 2);
}

}  // namespace
}  // namespace millrace
