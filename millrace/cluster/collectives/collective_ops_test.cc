// The collective ops of sessions, on devices of one task and of several.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"

namespace millrace {
namespace {

constexpr char kLeader[] = "/job:worker/replica:0/task:0";

// Where a graph runs: on the devices of a session in this process, or on one device of each of several servers.
class Place {
 public:
  Place(bool servers, int devices) {
    if (!servers) {
      for (int i = 0; i < devices; ++i) devices_.push_back(absl::StrCat("/device:CPU:", i));
      options_ = {.cpu_devices = devices, .gpu_devices = 0};
      return;
    }
    ServerOptions options;
    options.default_config.mutable_experimental()->set_collective_group_leader("/job:worker/task:0");
    servers_ = StartServers({{"worker", devices}}, options);
    for (int i = 0; i < devices; ++i) devices_.push_back(absl::StrCat("/job:worker/task:", i));
    options_.target = servers_[0]->target();
  }
  const std::vector<std::string>& devices() const { return devices_; }
  std::unique_ptr<Session> Open(const Graph& graph) const { return OpenSession(options_, graph); }
  Server& server(int i) { return *servers_[i]; }

 private:
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::string> devices_;
  SessionOptions options_;
};

class CollectiveOps : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, CollectiveOps, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Servers" : "Local"; });

AttrList ReduceAttrs(int size, int instance, const char* merge, const char* final_op, float timeout = 0) {
  return {{"group_size", int64_t{size}}, {"group_key", int64_t{1}}, {"instance_key", int64_t{instance}},
          {"merge_op", merge},           {"final_op", final_op},    {"subdiv_offsets", std::vector<int64_t>{0}},
          {"timeout_seconds", timeout}};
}

Tensor Counting(int64_t count, float scale) {
  Tensor tensor(DType::kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) tensor.data<float>()[i] = scale * static_cast<float>(i);
  return tensor;
}

std::vector<std::string> Names(const std::string& stem, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(stem, i));
  return names;
}

TEST_P(CollectiveOps, AReductionGivesEveryDeviceTheSameMean) {
  for (const int devices : {1, 2, 3}) {
    Place place(GetParam(), devices);
    for (const int64_t count : {int64_t{1}, int64_t{17}, int64_t{100000}}) {
      Graph graph;
      GraphBuilder b(&graph);
      for (int i = 0; i < devices; ++i) {
        b.device = place.devices()[i];
        const Endpoint x = b.Const(Counting(count, static_cast<float>(i + 1)));
        b.Op("CollectiveReduce", {x}, ReduceAttrs(devices, static_cast<int>(count), "Add", "Div"),
             absl::StrCat("y", i));
      }
      ASSERT_TRUE(b.ok()) << b.status();
      const auto session = place.Open(graph);
      for (int step = 0; step < 2; ++step) {
        const auto results = session->Run(Names("y", devices));
        ASSERT_TRUE(results.ok()) << results.status();
        for (const Tensor& y : *results) {
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_FLOAT_EQ(y.data<float>()[i], static_cast<float>(i) * static_cast<float>(devices + 1) / 2) << i;
          }
        }
      }
    }
  }
}

TEST_P(CollectiveOps, GatherScatterAllToAllAndBroadcastMoveWhatTheySay) {
  Place place(GetParam(), 3);
  Graph graph;
  GraphBuilder b(&graph);
  for (int i = 0; i < 3; ++i) {
    b.device = place.devices()[i];
    const Endpoint size = b.Scalar<int32_t>(3), key = b.Scalar<int32_t>(1);
    const Endpoint x = b.Const(Tensor::Of<float>({10.f * i, 10.f * i + 1, 10.f * i + 2}));
    b.Op("CollectiveGatherV2", {x, size, key, b.Scalar<int32_t>(1)}, {}, absl::StrCat("gather", i));
    b.Op("CollectiveAllToAllV2", {x, size, key, b.Scalar<int32_t>(2)}, {}, absl::StrCat("rows", i));
    b.Op("CollectiveReduceScatterV2", {x, size, key, b.Scalar<int32_t>(3)}, {{"merge_op", "Add"}, {"final_op", "Id"}},
         absl::StrCat("part", i));
    if (i == 1) {
      b.Op("CollectiveBcastSendV2", {x, size, key, b.Scalar<int32_t>(4)}, {}, absl::StrCat("cast", i));
    } else {
      b.Op("CollectiveBcastRecvV2", {size, key, b.Scalar<int32_t>(4), b.Ints({3})}, {{"T", DType::kFloat}},
           absl::StrCat("cast", i));
    }
  }
  ASSERT_TRUE(b.ok()) << b.status();
  const auto session = place.Open(graph);
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 3; ++i) {
      const auto gathered = session->Run(Names("gather", 3));
      ASSERT_TRUE(gathered.ok()) << gathered.status();
      EXPECT_EQ((*gathered)[i].flat<float>(), absl::MakeConstSpan({0.f, 1.f, 2.f, 10.f, 11.f, 12.f, 20.f, 21.f, 22.f}));
      const auto rows = session->Run(Names("rows", 3));
      ASSERT_TRUE(rows.ok()) << rows.status();
      EXPECT_EQ((*rows)[i].flat<float>(), absl::MakeConstSpan({0.f + i, 10.f + i, 20.f + i}));
      const auto parts = session->Run(Names("part", 3));
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ((*parts)[i].flat<float>(), absl::MakeConstSpan({30.f + 3 * i}));
      const auto cast = session->Run(Names("cast", 3));
      ASSERT_TRUE(cast.ok()) << cast.status();
      EXPECT_EQ((*cast)[i].flat<float>(), absl::MakeConstSpan({10.f, 11.f, 12.f}));
    }
  }
}

TEST_P(CollectiveOps, AMemberThatDoesNotComeIsADeadlineThatSaysWhoIsMissing) {
  Place place(GetParam(), 2);
  Graph graph;
  GraphBuilder b(&graph);
  b.device = place.devices()[0];
  b.Op("CollectiveReduce", {b.Const(Counting(4, 1))}, ReduceAttrs(2, 1, "Add", "Id", 0.1f), "y");
  ASSERT_TRUE(b.ok()) << b.status();
  const Status status = place.Open(graph)->Run({"y"}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "Collective has timed out waiting for other workers")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "1 of 2 devices")) << status;
}

TEST_P(CollectiveOps, ShapesThatDifferAreAnErrorAndTheNextStepWorks) {
  Place place(GetParam(), 2);
  Graph graph;
  GraphBuilder b(&graph);
  for (int i = 0; i < 2; ++i) {
    b.device = place.devices()[i];
    b.Op("CollectiveReduce", {b.Const(Counting(4 + i, 1))}, ReduceAttrs(2, 1, "Add", "Id"), absl::StrCat("bad", i));
    b.Op("CollectiveReduce", {b.Const(Counting(4, 1))}, ReduceAttrs(2, 2, "Max", "Id"), absl::StrCat("good", i));
  }
  ASSERT_TRUE(b.ok()) << b.status();
  const auto session = place.Open(graph);
  const Status status = session->Run({"bad0", "bad1"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "Shape mismatch")) << status;
  EXPECT_EQ(session->Run({"good0", "good1"}).status(), absl::OkStatus());
}

TEST(CollectiveOpsOfServers, AStepThatIsCancelledLeavesNothingBehind) {
  Place place(/*servers=*/true, 2);
  Graph graph;
  GraphBuilder b(&graph);
  b.device = place.devices()[1];
  b.Op("CollectiveReduce", {b.Const(Counting(4, 1))}, ReduceAttrs(2, 1, "Add", "Id"), "y");
  ASSERT_TRUE(b.ok()) << b.status();
  auto session = place.Open(graph);
  BackgroundRun run(session.get(), "y");
  Worker& leader = *place.server(0).worker();
  EXPECT_TRUE(Await([&] { return leader.collectives().cluster_groups()->Progress(1).starts_with("1 of 2"); }));
  bool named = false;
  for (const Wait& wait : place.server(1).worker()->ListWaits()) {
    named |= absl::StrContains(wait.what, absl::StrCat("group 1, which ", kLeader, " forms"));
  }
  EXPECT_TRUE(named);
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(run.End()));
  EXPECT_TRUE(Await([&] { return leader.collectives().cluster_groups()->Progress(1) == "no device has joined"; }));
}

TEST(CollectiveOpsOfServers, TheDeathOfAMemberEndsTheStepAndNamesItsTask) {
  Place place(/*servers=*/true, 2);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 2; ++i) {
    Graph graph;
    GraphBuilder b(&graph);
    b.device = place.devices()[i];
    b.Op("CollectiveReduce", {b.Const(Counting(4, 1))}, ReduceAttrs(2, 1, "Add", "Id"), "y");
    SessionOptions options{.target = place.server(i).target()};
    options.config.add_device_filters(place.devices()[i]);
    sessions.push_back(OpenSession(options, graph));
  }
  {
    BackgroundRun other(sessions[1].get(), "y");
    EXPECT_EQ(sessions[0]->Run({"y"}).status(), absl::OkStatus());
    EXPECT_EQ(other.End(), absl::OkStatus());
  }
  BackgroundRun survivor(sessions[0].get(), "y");
  EXPECT_TRUE(Await([&] { return !place.server(0).worker()->ListWaits().empty(); }));
  place.server(1).Stop();
  const Status status = survivor.End();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/job:worker/replica:0/task:1")) << status;
}

TEST(CollectiveOpsOfServers, MalformedCallsGetErrors) {
  Place place(/*servers=*/true, 1);
  Worker& worker = *place.server(0).worker();
  Status status;
  const auto keep = [&](const auto& result) { status = result.status(); };
  worker.CompleteGroup({}, {}, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  pb::CompleteGroupRequest group;
  group.set_group_key(3);
  group.set_group_size(1 << 30);
  group.mutable_device_attributes()->set_name("/job:worker/replica:0/task:0/device:CPU:0");
  worker.CompleteGroup({}, group, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  pb::CompleteInstanceRequest instance;
  instance.set_group_key(3);
  worker.CompleteInstance({}, instance, keep);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  group.set_group_size(1);
  group.set_device_type("CPU");
  worker.CompleteGroup({}, group, keep);
  EXPECT_EQ(status, absl::OkStatus());
  worker.CompleteInstance({}, instance, keep);  // of no type
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  instance.set_data_type(static_cast<pb::DataType>(1));
  worker.CompleteInstance({}, instance, keep);  // by a device that is no member
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  instance.set_device("/job:worker/replica:0/task:0/device:CPU:0");
  instance.set_type(77);
  worker.CompleteInstance({}, instance, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  instance.set_type(0);
  instance.mutable_shape()->add_dim()->set_size(-5);
  worker.CompleteInstance({}, instance, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  pb::RecvBufRequest buffer;
  worker.RecvBuf({}, buffer, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  buffer.set_buf_rendezvous_key("1:1:0:0:0:0:0");
  worker.RecvBuf({}, buffer, keep);  // from a process that is gone
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  buffer.set_num_bytes(-1);
  worker.RecvBuf({}, buffer, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  pb::GetStepSequenceRequest sequence;
  for (int i = 0; i < 2000; ++i) sequence.add_graph_key(i);
  worker.GetStepSequence({}, sequence, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace millrace
