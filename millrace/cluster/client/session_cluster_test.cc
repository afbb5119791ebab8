// Servers that were started without a cluster, and sessions that provide it.

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Each is /job:worker/task:0 to itself.
std::vector<std::unique_ptr<Server>> StartStrangers(int count) {
  std::vector<std::unique_ptr<Server>> servers;
  for (int i = 0; i < count; ++i)
    servers.push_back(Server::Start(ClusterSpec::Of({{"worker", {"127.0.0.1:0"}}}).value(), "worker", 0).value());
  return servers;
}

// The first two are workers 0 and 1, the third is ps 3.
SessionOptions WithCluster(const std::vector<std::unique_ptr<Server>>& servers) {
  SessionOptions options = OverTheNetwork(*servers[0]);
  const auto address = [&](int i) { return servers[i]->target().substr(7); };
  options.cluster =
      ClusterSpec::OfTasks({{"worker", {{0, address(0)}, {1, address(1)}}}, {"ps", {{3, address(2)}}}}).value().ToDef();
  return options;
}

TEST(SessionCluster, AStepRunsOnServersThatOnlyTheSessionKnows) {
  const auto servers = StartStrangers(3);
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:3";
  const AttrList dtype = {{"dtype", DType::kFloat}};
  const Endpoint w =
      b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}, {"shared_name", "w"}}, "w");
  b.AddNode("AssignVariableOp", std::vector<Endpoint>{w, b.Scalar(5.f)}, dtype, "init");
  const Endpoint value = b.Op("ReadVariableOp", {w}, dtype, "value");
  b.device = "/job:worker/task:1";
  const Endpoint y = b.Op("Mul", {value, b.Op("Identity", {b.Scalar(3.f)}, {}, "three")}, {}, "y");
  b.device = "/job:worker/task:0";
  b.Op("Neg", {y}, {}, "z");
  ASSERT_EQ(b.status(), absl::OkStatus());
  auto session = OpenSession(WithCluster(servers), graph);
  ASSERT_EQ(session->RunTargets({"init"}), absl::OkStatus());
  RunMetadata metadata;
  std::vector<Tensor> results;
  ASSERT_EQ(session->Run({.trace = true}, {}, std::vector<std::string>{"z", "y"}, {}, &results, &metadata),
            absl::OkStatus());
  EXPECT_EQ(results[0].scalar<float>(), -15);
  EXPECT_EQ(results[1].scalar<float>(), 15);
  std::map<std::string, std::string> where;
  for (const auto& device : metadata.step_stats().dev_stats()) {
    for (const auto& node : device.node_stats()) where[node.node_name()] = device.device();
  }
  EXPECT_EQ(where["value"], "/job:ps/replica:0/task:3/device:CPU:0");
  EXPECT_EQ(where["y"], "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(where["z"], "/job:worker/replica:0/task:0/device:CPU:0");
  std::vector<std::string> names;
  const std::vector<DeviceInfo> devices = session->ListDeviceInfo().value();
  for (const DeviceInfo& device : devices) names.push_back(device.name);
  EXPECT_THAT(names, UnorderedElementsAre("/job:worker/replica:0/task:0/device:CPU:0",
                                          "/job:worker/replica:0/task:1/device:CPU:0",
                                          "/job:ps/replica:0/task:3/device:CPU:0"));
  // The variable is the task's, whatever a session calls the task.
  auto again = OpenSession(WithCluster(servers), graph);
  EXPECT_EQ(again->Run({"z"}).value()[0].scalar<float>(), -15);
}

TEST(SessionCluster, AClusterWithoutTheServerItselfIsRefused) {
  const auto servers = StartStrangers(2);
  SessionOptions options = OverTheNetwork(*servers[0]);
  options.cluster = ClusterSpec::Of({{"ps", {servers[1]->target().substr(7)}}}).value().ToDef();
  Graph graph;
  GraphBuilder b(&graph);
  b.Op("Identity", {b.Scalar(3.f)}, {}, "y");
  Status status;
  StatusOr<std::unique_ptr<Session>> session = Session::Create(options);
  status = session.ok() ? (*session)->Extend(graph) : session.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the cluster of the session has neither /job:worker/replica:0/task:0"));
}

TEST(SessionCluster, ADeviceThatTheSessionsClusterLacksIsNamed) {
  const auto servers = StartStrangers(3);
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  b.Op("Identity", {b.Scalar(3.f)}, {}, "y");
  StatusOr<std::unique_ptr<Session>> session = Session::Create(WithCluster(servers));
  ASSERT_EQ(session.status(), absl::OkStatus());
  Status status = (*session)->Extend(graph);
  if (status.ok()) status = (*session)->Run({"y"}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:3"));
}

}  // namespace
}  // namespace millrace
