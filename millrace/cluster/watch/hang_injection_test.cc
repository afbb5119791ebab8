// Hangs of each kind in a cluster of real servers, and their reports. Stopped processes are tested in tests/serve.
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLimit = absl::Milliseconds(100);
const AttrList kFloats = {{"component_types", std::vector<DType>{DType::kFloat}}};

AttrList With(AttrList attrs, std::pair<std::string, AttrInit> more) {
  attrs.push_back(std::move(more));
  return attrs;
}

class HangInjectionTest : public ::testing::Test {
 protected:
  // One ps and two workers; a session at each worker over the network.
  void SetUp() override {
    servers_ = StartServers({{"ps", 1}, {"worker", 2}});
    transport_ = net::NewGrpcTransport();
  }
  void TearDown() override {
    for (auto& session : sessions_) session->Close().IgnoreError();
    for (auto& run : runs_) run->End().IgnoreError();
  }

  Session* Open(int worker, const GraphBuilder& b) {
    EXPECT_EQ(b.status(), absl::OkStatus());
    sessions_.push_back(OpenSession(OverTheNetwork(*servers_[1 + worker]), *b.graph()));
    return sessions_.back().get();
  }
  // Runs a target on a thread of its own until the test ends.
  void Run(Session* session, const std::string& target) {
    runs_.push_back(std::make_unique<BackgroundTarget>(session, target));
  }

  // The report once so many have waited for longer than the limit and a cause was found.
  HangReport Explained(size_t waits = 1) {
    HangReport report;
    EXPECT_TRUE(Await([&] {
      const std::vector<TaskView> tasks =
          AskCluster(transport_.get(), servers_[1]->target().substr(7), absl::Seconds(10));
      report = ExplainHang(tasks, kLimit);
      return report.somebody_waits && !report.cause.empty() && report.waits.size() >= waits;
    }));
    return report;
  }

  class BackgroundTarget {
   public:
    BackgroundTarget(Session* session, const std::string& target)
        : thread_([this, session, target] { status_ = session->RunTargets({target}); }) {}
    Status End() {
      thread_.join();
      return status_;
    }

   private:
    Status status_;
    std::thread thread_;
  };

  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<net::Transport> transport_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<BackgroundTarget>> runs_;
};

TEST_F(HangInjectionTest, AQueueThatNobodyFillsIsNamed) {
  Graph graph;
  GraphBuilder b(&graph);
  AddBlockedStep(&b, "/job:ps/task:0", "/job:worker/task:0");
  Run(Open(0, b), "y");
  const HangReport report = Explained(2);
  EXPECT_THAT(report.cause, AllOf(StartsWith("FIFOQueue 'numbers' on ps/0 stays empty and nobody fills it"),
                                  HasSubstr("at node take for 1 element (step "), HasSubstr(" of worker/0)")));
  EXPECT_THAT(report.waits,
              Contains(AllOf(StartsWith("worker/0 waits "), HasSubstr(" for tensor take"), HasSubstr(" from ps/0"))));
}

TEST_F(HangInjectionTest, ABatchThatIsShortIsCounted) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint queue =
      b.Op("FIFOQueueV2", {},
           With(With(kFloats, {"shapes", std::vector<PartialShape>{PartialShape(Shape())}}), {"shared_name", "input"}),
           "queue");
  b.AddNode("QueueEnqueueManyV2", std::vector<Endpoint>{queue, b.Const(Tensor::Of<float>({1, 2, 3}))},
            {{"Tcomponents", std::vector<DType>{DType::kFloat}}}, "put");
  b.Op("QueueDequeueManyV2", {queue, b.Scalar<int32_t>(4)}, kFloats, "batch");
  Session* const session = Open(0, b);
  ASSERT_EQ(session->RunTargets({"put"}), absl::OkStatus());
  Run(session, "batch");
  const HangReport report = Explained();
  EXPECT_THAT(report.cause, AllOf(StartsWith("FIFOQueue 'input' on ps/0 has 3 of the 4 that are wanted"),
                                  HasSubstr("at node batch for 4 elements")));
  EXPECT_THAT(report.waits, Contains(HasSubstr("4 elements of FIFOQueue 'input' (0 elements), of which it has 3")));
}

TEST_F(HangInjectionTest, AQueueThatNobodyEmptiesIsNamed) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint queue =
      b.Op("FIFOQueueV2", {}, With(With(kFloats, {"capacity", int64_t{1}}), {"shared_name", "results"}), "queue");
  b.AddNode("QueueEnqueueV2", std::vector<Endpoint>{queue, b.Scalar(1.f)},
            {{"Tcomponents", std::vector<DType>{DType::kFloat}}}, "put");
  Session* const session = Open(0, b);
  ASSERT_EQ(session->RunTargets({"put"}), absl::OkStatus());
  Run(session, "put");
  EXPECT_THAT(Explained().cause,
              AllOf(StartsWith("FIFOQueue 'results' on ps/0 stays full (1 of 1 elements) and nobody takes from it"),
                    HasSubstr("at node put")));
}

TEST_F(HangInjectionTest, ABarrierThatIsShortOfOneIsNamed) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint barrier = b.Op(
      "Barrier", {},
      With(With(kFloats, {"shapes", std::vector<PartialShape>{PartialShape(Shape())}}), {"shared_name", "all_here"}),
      "barrier");
  b.AddNode("BarrierInsertMany",
            std::vector<Endpoint>{barrier, b.Const(Tensor::Of<std::string>({"worker 0", "worker 2"})),
                                  b.Const(Tensor::Of<float>({1, 1}))},
            {{"component_index", int64_t{0}}}, "arrive");
  b.Op("BarrierTakeMany", {barrier, b.Scalar<int32_t>(3)}, kFloats, "meet");
  Session* const session = Open(0, b);
  ASSERT_EQ(session->RunTargets({"arrive"}), absl::OkStatus());
  Run(session, "meet");
  EXPECT_THAT(Explained().cause, AllOf(StartsWith("Barrier 'all_here' on ps/0 is short of 1 (2 of 3 elements)"),
                                       HasSubstr("at node meet"), HasSubstr("worker/1, which has no session")));
}

// Gradients of two workers are taken by the chief; each worker waits for a token after it gave its own.
void AddSynchronousStep(GraphBuilder* b) {
  b->device = "/job:ps/task:0";
  const AttrList dtype = {{"dtype", DType::kFloat}};
  const Endpoint accumulator =
      b->Op("ConditionalAccumulator", {},
            With(With(dtype, {"shape", PartialShape(Shape())}), {"shared_name", "w/grad"}), "accumulator");
  b->Op("AccumulatorTakeGradient", {accumulator, b->Scalar<int32_t>(2)}, dtype, "sync/take_grad");
  Node* const apply =
      b->AddNode("AccumulatorApplyGradient", std::vector<Endpoint>{accumulator, b->Scalar<int64_t>(0), b->Scalar(1.f)},
                 dtype, "sync/apply_grad");
  const Endpoint tokens = b->Op("FIFOQueueV2", {}, With(kFloats, {"shared_name", "sync_token_q"}), "tokens");
  b->control_inputs = {apply};
  b->Op("QueueDequeueV2", {tokens}, kFloats, "sync/token");
  b->control_inputs.clear();
}

TEST_F(HangInjectionTest, TheWorkerThatAQuorumLacksIsNamed) {
  Graph graph;
  GraphBuilder b(&graph);
  AddSynchronousStep(&b);
  Session* const chief = Open(0, b);
  Run(chief, "sync/take_grad");
  Run(chief, "sync/token");
  HangReport report;
  ASSERT_TRUE(Await([&] {
    return absl::StartsWith((report = Explained(2)).cause, "accumulator 'w/grad' on ps/0 has 1 of 2 gradients");
  })) << report.cause;
  EXPECT_THAT(report.cause, HasSubstr("none comes from worker/1, which has no session and runs no step"));
  EXPECT_THAT(report.waits,
              Contains(AllOf(HasSubstr("at node sync/take_grad for 1 of 2 gradients for accumulator 'w/grad'"),
                             HasSubstr("of worker/0"))));
  EXPECT_THAT(report.waits, Contains(HasSubstr("at node sync/token for 1 element of FIFOQueue 'sync_token_q'")));

  // With a session it is named all the same; and gone, as one that cannot be reached.
  Graph other;
  GraphBuilder c(&other);
  c.Const(Tensor::Scalar(1.f), "one");
  ASSERT_EQ(Open(1, c)->RunTargets({"one"}), absl::OkStatus());
  ASSERT_TRUE(Await([&] {
    return absl::StrContains((report = Explained(2)).cause,
                             "none comes from worker/1, which runs no step; its last one ended");
  })) << report.cause;
  servers_[2]->Stop();
  ASSERT_TRUE(Await([&] { return absl::StartsWith((report = Explained(2)).cause, "worker/1 at "); })) << report.cause;
  EXPECT_THAT(report.cause, HasSubstr("cannot be reached"));
}

TEST_F(HangInjectionTest, WhoDoesNotInitialiseTheVariablesIsNamed) {
  // A program that is not the chief waits like this.
  const auto waits = servers_[2]->worker()->task().waits();
  const uint64_t wait = waits->Begin({.node = "session",
                                      .what = "worker/0 (the chief) to initialise w, b",
                                      .kind = Wait::Kind::kPeer,
                                      .peer = "/job:worker/replica:0/task:0"});
  EXPECT_THAT(
      Explained().cause,
      AllOf(StartsWith("worker/1 waits "),
            HasSubstr(" for worker/0 (the chief) to initialise w, b; worker/0 has no session and runs no step")));
  waits->End(wait);
  const std::vector<TaskView> tasks = AskCluster(transport_.get(), servers_[1]->target().substr(7), absl::Seconds(10));
  EXPECT_EQ(ExplainHang(tasks, kLimit).cause, "");
}

TEST_F(HangInjectionTest, AStepThatFailsIsNoHang) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint w =
      b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "w"}}, "w");
  b.Op("ReadVariableOp", {w}, {{"dtype", DType::kFloat}}, "read");
  Session* const session = Open(0, b);
  EXPECT_EQ(session->RunTargets({"read"}).code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<TaskView> tasks = AskCluster(transport_.get(), servers_[1]->target().substr(7), absl::Seconds(10));
  const HangReport report = ExplainHang(tasks, absl::ZeroDuration());
  EXPECT_EQ(report.cause, "");
  EXPECT_FALSE(report.somebody_waits);
  EXPECT_EQ(tasks[0].status.steps_finished(), 0);
}

TEST_F(HangInjectionTest, StepsAreCountedWhereTheyAreDrivenAndWhereTheyRun) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint x = b.Op("Identity", {b.Scalar(3.f)}, {}, "x");
  b.device = "/job:worker/task:0";
  b.Op("Identity", {x}, {}, "y");
  Session* const session = Open(0, b);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(session->RunTargets({"y"}), absl::OkStatus());
  const std::vector<TaskView> tasks = AskCluster(transport_.get(), servers_[1]->target().substr(7), absl::Seconds(10));
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[0].status.steps_finished(), 3);
  EXPECT_GT(tasks[0].status.steps_micros(), 0);
  EXPECT_EQ(tasks[0].status.parts_finished(), 3);
  EXPECT_EQ(tasks[0].status.sessions(0).steps_finished(), 3);
  EXPECT_GE(tasks[0].status.last_step_finished_micros(), tasks[0].status.started_micros());
  EXPECT_LE(tasks[0].status.last_step_finished_micros(), tasks[0].status.now_micros());
  EXPECT_EQ(tasks[1].status.steps_finished(), 0);
  EXPECT_EQ(tasks[1].status.parts_finished(), 3);
  EXPECT_GT(tasks[1].status.last_part_finished_micros(), 0);
  EXPECT_EQ(tasks[2].status.parts_finished(), 0);
}

}  // namespace
}  // namespace millrace
