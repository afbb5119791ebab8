// Runs that are repeated under their identity over a cluster.
#include "gmock/gmock.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

// A variable `v` and two queues on the ps.
class RepeatedRunOverClusterTest : public ::testing::TestWithParam<bool> {
 protected:
  RepeatedRunOverClusterTest() {
    if (!GetParam()) transport_ = net::NewGrpcTransport();
    Start(transport_.get());  // null: with a lane
  }
  ~RepeatedRunOverClusterTest() override {
    session_.reset();
    worker_.reset();
    ps_.reset();
  }
  void Start(net::Transport* transport) {
    const std::vector<int> ports = FreePorts(2);
    cluster_ = ClusterSpec::Of(
                   {{"ps", {absl::StrCat("localhost:", ports[0])}}, {"worker", {absl::StrCat("localhost:", ports[1])}}})
                   .value();
    options_.transport = transport;
    ps_ = Server::Start(cluster_, "ps", 0).value();
    ps_->worker()->task().resources()->SetUpdateHook([this](const StateUpdate& update) {
      MutexLock lock(&mu_);
      seen_.push_back(update.run.number);
    });
    worker_ = Server::Start(cluster_, "worker", 0, options_).value();
    b_.device = "/job:ps/task:0/device:CPU:0";
    const Endpoint v = b_.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "v");
    b_.AddNode("AssignVariableOp", {v, b_.Scalar(0.0f)}, {}, "init");
    b_.AddNode("AssignAddVariableOp", {v, b_.Scalar(1.0f)}, {}, "more");
    b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}, "value");
    const std::vector<DType> types = {DType::kFloat};
    const Endpoint queue = b_.Op("FIFOQueueV2", {}, {{"component_types", types}, {"shared_name", "numbers"}}, "queue");
    b_.AddNode("QueueEnqueueManyV2", {queue, b_.Const(Tensor::Of<float>({5, 6, 7}))}, {}, "fill");
    const Endpoint number = b_.Op("QueueDequeueV2", {queue}, {{"component_types", types}}, "take");
    b_.AddNode("AssignAddVariableOp", {v, number}, {}, "add_number");
    b_.AddNode("QueueCloseV2", {queue}, {}, "close");
    b_.device = "/job:worker/task:0/device:CPU:0";
    b_.Op("Identity", {number}, {}, "number_at_worker");
    Open();
    EXPECT_EQ(session_->RunTargets({"init"}), absl::OkStatus());
    Seen();
  }
  // Over the network: as a client in another process.
  void Open() { session_ = OpenSession(OverTheNetwork(*worker_), graph_); }
  Status Run(const RunIdentity& run, const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
             std::vector<Tensor>* results) {
    return session_->Run(RunOptions{.identity = run}, {}, fetches, targets, results, nullptr);
  }
  Status RunTarget(const RunIdentity& run, const std::string& target) {
    std::vector<Tensor> none;
    return Run(run, {}, {target}, &none);
  }
  float Value() { return session_->Run({"value"}).value()[0].scalar<float>(); }
  std::vector<int64_t> Seen() {
    MutexLock lock(&mu_);
    return std::exchange(seen_, {});
  }
  static RunIdentity Again(RunIdentity run) {
    ++run.attempt;
    return run;
  }

  std::unique_ptr<net::Transport> transport_;
  ClusterSpec cluster_;
  ServerOptions options_;
  Mutex mu_;
  std::vector<int64_t> seen_ ABSL_GUARDED_BY(mu_);  // the numbers of the runs that have updated the variable
  std::unique_ptr<Server> ps_, worker_;
  Graph graph_;
  GraphBuilder b_{&graph_};
  std::unique_ptr<Session> session_;
};

TEST_P(RepeatedRunOverClusterTest, ANewSessionOverARestartedMasterCountsOnce) {
  const RunIdentity run = RunIdentity::OfNewClient();
  ASSERT_EQ(RunTarget(run, "more"), absl::OkStatus());
  session_.reset();
  worker_.reset();
  worker_ = Server::Start(cluster_, "worker", 0, options_).value();
  Open();
  ASSERT_EQ(RunTarget(Again(run), "more"), absl::OkStatus());
  EXPECT_EQ(Value(), 1);
  EXPECT_THAT(Seen(), ElementsAre(1));
  ASSERT_EQ(RunTarget(run.Next(), "more"), absl::OkStatus());
  EXPECT_EQ(Value(), 2);
}

TEST_P(RepeatedRunOverClusterTest, ElementsThatCrossTasksAreTheSame) {
  ASSERT_EQ(session_->RunTargets({"fill"}), absl::OkStatus());
  const RunIdentity run = RunIdentity::OfNewClient();
  for (const RunIdentity& attempt : {run, Again(run)}) {
    std::vector<Tensor> results;
    ASSERT_EQ(Run(attempt, {"number_at_worker"}, {"add_number"}, &results), absl::OkStatus());
    EXPECT_EQ(results[0].scalar<float>(), 5);
  }
  EXPECT_EQ(Value(), 5);
}

TEST_P(RepeatedRunOverClusterTest, CallablesCarryTheIdentity) {
  auto callable = session_->MakeCallable({.targets = {"more"}}).value();
  RunOptions options{.identity = RunIdentity::OfNewClient()};
  std::vector<Tensor> none;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(callable->Run({}, &none, options), absl::OkStatus());
    ++options.identity.attempt;
  }
  EXPECT_EQ(Value(), 1);
}

TEST_P(RepeatedRunOverClusterTest, EachRepetitionHasItsNumber) {
  ASSERT_EQ(session_->RunTargets({"fill"}), absl::OkStatus());
  ASSERT_EQ(session_->RunTargets({"close"}), absl::OkStatus());
  // In the server's own process, where the ps repeats the step by itself.
  session_ = OpenSession({.target = worker_->target()}, graph_);
  auto callable = session_->MakeCallable({.targets = {"add_number"}}).value();
  RunIdentity run = RunIdentity::OfNewClient();
  EXPECT_EQ(callable->Repeat({}, &run).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(Seen(), ElementsAre(1, 2, 3));
  EXPECT_EQ(Value(), 18);
  // The client may not know how far it came.
  run = Again(run);
  EXPECT_EQ(callable->Repeat({}, &run).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Value(), 18);
}

TEST_P(RepeatedRunOverClusterTest, RunsWithoutIdentityAreNotRecorded) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(session_->RunTargets({"more"}), absl::OkStatus());
  EXPECT_EQ(Value(), 3);
  EXPECT_EQ(ps_->worker()->task().resources()->runs().size(), 0u);
  EXPECT_EQ(worker_->worker()->task().resources()->runs().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, RepeatedRunOverClusterTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Lane" : "Grpc"; });

}  // namespace
}  // namespace millrace
