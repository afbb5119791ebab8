// A step lane that breaks while both tasks live on.
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/step/step_transport_testing.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_proxy_testing.h"
#include "millrace/net/lane/lane_transport.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A ps, and a worker whose lane to it goes through a proxy.
class StepLaneBreakTest : public ::testing::Test {
 protected:
  StepLaneBreakTest() {
    const std::vector<int> ports = FreePorts(2);
    const ClusterSpec cluster = ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ports[0])}},
                                                 {"worker", {absl::StrCat("localhost:", ports[1])}}})
                                    .value();
    ps_ = Server::Start(cluster, "ps", 0).value();
    ServerOptions options;
    options.transport = transport_.get();
    worker_ = Server::Start(cluster, "worker", 0, options).value();
    AddBlockedStep(&b_, "/job:ps/task:0/device:CPU:0", "/job:worker/task:0/device:CPU:0");
    b_.device = "/job:worker/task:0/device:CPU:0";
    const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    b_.device = "/job:ps/task:0/device:CPU:0";
    b_.Op("Neg", {b_.Op("Identity", {x})}, {}, "negative");
    session_ = OpenSession({.target = worker_->target()}, graph_);
  }
  ~StepLaneBreakTest() override {
    session_.reset();
    worker_.reset();
    ps_.reset();
    transport_.reset();
  }
  Status Step() {
    const StatusOr<std::vector<Tensor>> got = session_->Run({{"x", Tensor::Scalar(4.f)}}, {"negative"});
    if (got.ok()) {
      EXPECT_EQ((*got)[0].scalar<float>(), -4);
    }
    return got.status();
  }
  bool HasLane() {
    return Await([&] {
      EXPECT_EQ(Step(), absl::OkStatus());
      return PeerOf(*worker_, *ps_).kind == "tcp";
    });
  }
  // Ends with `why`, and steps go on: over gRPC, and then over a new lane.
  void ExpectUnavailable(const Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("/job:ps/replica:0/task:0"), HasSubstr(why)));
    const int connections = proxy_.connections();
    EXPECT_EQ(Step(), absl::OkStatus());
    EXPECT_TRUE(HasLane());
    EXPECT_EQ(proxy_.connections(), connections + 1);
    for (Server* server : {ps_.get(), worker_.get()})
      EXPECT_TRUE(Await([&] { return server->worker()->ListSteps().empty(); }));
  }

  net::LaneProxy proxy_;
  std::unique_ptr<net::Transport> transport_ =
      net::NewLaneTransport(std::make_unique<net::SetUpThroughProxy>(net::NewGrpcTransport(), &proxy_), {});
  Graph graph_;
  GraphBuilder b_{&graph_};
  std::unique_ptr<Server> ps_, worker_;
  std::unique_ptr<Session> session_;
};

TEST_F(StepLaneBreakTest, AStepInFlightIsUnavailableAndLaterOnesRun) {
  ASSERT_TRUE(HasLane());
  BackgroundRun run(session_.get(), "y");
  ASSERT_TRUE(Await([&] { return !ps_->worker()->ListWaits().empty(); }));
  proxy_.Cut();
  ExpectUnavailable(run.End(), "closed the connection");
}

TEST_F(StepLaneBreakTest, ACorruptedFrameIsNamedAndLaterStepsRun) {
  ASSERT_TRUE(HasLane());
  proxy_.CorruptNext(/*to_server=*/false);
  ExpectUnavailable(Step(), "checksum");
}

TEST_F(StepLaneBreakTest, ACorruptedFrameAtThePeerIsCountedThere) {
  ASSERT_TRUE(HasLane());
  proxy_.CorruptNext(/*to_server=*/true);
  ExpectUnavailable(Step(), "closed the connection");
  EXPECT_EQ(ps_->worker()->options().transport->status().refused_connections, 1);
}

}  // namespace
}  // namespace millrace
