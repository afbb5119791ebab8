#include "millrace/train/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/clock.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/executor/step_stats.h"
#include "millrace/train/hooks/profiler_hook.h"
#include "millrace/train/timeline/merge_timelines.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

// A clock with a fixed offset.
class SkewedClock : public Clock {
 public:
  explicit SkewedClock(absl::Duration skew) : skew_(skew) {}
  absl::Time Now() override { return Clock::Real()->Now() + skew_; }

 private:
  const absl::Duration skew_;
};

// A trace as a viewer sees it.
struct Trace {
  explicit Trace(const std::string& text) : all(json::parse(text)) {
    for (const json& event : all["traceEvents"]) {
      const auto key = std::pair(event["pid"].get<int>(), event.value("tid", 0));
      if (event["name"] == "process_name") processes[key.first] = event["args"]["name"];
      if (event["name"] == "thread_name") lanes[key] = event["args"]["name"];
    }
  }
  std::vector<json> Of(const std::string& phase, const std::string& category) const {
    std::vector<json> found;
    for (const json& event : all["traceEvents"]) {
      if (event["ph"] == phase && event["cat"] == category) found.push_back(event);
    }
    return found;
  }
  std::string Process(const json& event) const { return processes.at(event["pid"].get<int>()); }
  std::string Lane(const json& event) const { return lanes.at({event["pid"].get<int>(), event["tid"].get<int>()}); }

  json all;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> lanes;
};

// Slices of a lane must nest or follow each other; viewers cannot show anything else.
void ExpectNoOverlap(const Trace& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  for (const json& event : trace.all["traceEvents"]) {
    if (event["ph"] == "X")
      lanes[{event["pid"], event["tid"]}].push_back(
          {event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
  }
  for (const auto& [lane, slices] : lanes) {
    for (const auto& a : slices) {
      for (const auto& b : slices)
        EXPECT_FALSE(a.first < b.first && b.first < a.second - 1e-4 && a.second < b.second - 1e-4)
            << trace.lanes.at(lane);
    }
  }
}

// Servers whose clocks are seconds apart, and a step with tensors both ways.
class SkewedCluster {
 public:
  explicit SkewedCluster(const std::string& transport = {}) {
    const std::vector<int> ports = FreePorts(2);
    const ClusterSpec cluster = ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ports[0])}},
                                                 {"worker", {absl::StrCat("localhost:", ports[1])}}})
                                    .value();
    ps = Server::Start(cluster, "ps", 0, {.step_transport = transport, .clock = &ps_clock}).value();
    worker = Server::Start(cluster, "worker", 0, {.step_transport = transport, .clock = &worker_clock}).value();
    b.device = "/job:ps/task:0";
    const Endpoint x = b.Op("Neg", {b.Const(Tensor(DType::kFloat, Shape({100, 100})), "zeros")}, {}, "x");
    b.device = "/job:worker/task:0";
    const Endpoint y = b.Op("MatMul", {x, x}, {}, "y");
    b.device = "/job:ps/task:0";
    b.Op("Neg", {y}, {}, "z");
    session = OpenSession(OverTheNetwork(*worker), graph);
  }
  pb::StepStats Run() {
    RunMetadata metadata;
    std::vector<Tensor> results;
    EXPECT_EQ(session->Run({.trace = true}, {}, {}, std::vector<std::string>{"z"}, &results, &metadata),
              absl::OkStatus());
    return metadata.step_stats();
  }

  SkewedClock ps_clock{absl::Seconds(7)}, worker_clock{absl::Seconds(-3)};
  std::unique_ptr<Server> ps, worker;
  Graph graph;
  GraphBuilder b{&graph};
  std::unique_ptr<Session> session;
};

void ExpectWholeAndInOrder(const Trace& trace) {
  ExpectNoOverlap(trace);
  const std::vector<json> sent = trace.Of("s", "Sent"), arrived = trace.Of("f", "Sent");
  ASSERT_EQ(sent.size(), 2u);
  ASSERT_EQ(arrived.size(), 2u);
  for (const json& begin : sent) {
    for (const json& end : arrived) {
      if (begin["id"] != end["id"]) continue;
      EXPECT_LE(begin["ts"].get<double>(), end["ts"].get<double>());
      EXPECT_LT(end["ts"].get<double>() - begin["ts"].get<double>(), 2e6);
      EXPECT_NE(trace.Process(begin), trace.Process(end));
      EXPECT_EQ(trace.Lane(begin).substr(0, 5), "sends");
      EXPECT_EQ(trace.Lane(end).substr(0, 8), "receives");
    }
  }
  // y is made after x arrived and before z is.
  std::map<std::string, json> ops;
  for (const json& op : trace.Of("X", "Op")) ops[op["args"]["node"]] = op;
  ASSERT_TRUE(ops.contains("x") && ops.contains("y") && ops.contains("z"));
  EXPECT_EQ(trace.Process(ops["x"]), "ps/0");
  EXPECT_EQ(trace.Process(ops["y"]), "worker/0");
  EXPECT_EQ(ops["y"]["name"], "MatMul y");
  EXPECT_EQ(ops["y"]["args"]["op"], "MatMul");
  EXPECT_THAT(trace.Lane(ops["y"]), HasSubstr("CPU:0 thread"));
  EXPECT_LT(ops["x"]["ts"].get<double>(), ops["y"]["ts"].get<double>());
  EXPECT_LT(ops["y"]["ts"].get<double>(), ops["z"]["ts"].get<double>());
  for (const json& transfer : trace.Of("X", "Transfer")) {
    EXPECT_EQ(transfer["args"]["bytes"], 40000);
    EXPECT_THAT(transfer["args"]["from"].get<std::string>(), HasSubstr("/device:CPU:0"));
  }
}

// Whether the tensors came without being asked for.
bool Pushed(const pb::StepStats& stats) {
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    for (const pb::NodeExecStats& event : device.node_stats()) {
      if (event.node_name() == "RecvTensor" && event.all_end_rel_nanos() != 0) return false;
    }
  }
  return true;
}

// Tensors that are asked for, and tensors that are pushed.
class TimelineOver : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, TimelineOver, testing::Values("grpc", "tcp", "shm"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TimelineOver, PutsTasksWithDifferentClocksOnOne) {
  SkewedCluster cluster(GetParam());
  cluster.Run();  // compiles
  Timeline timeline;
  const bool pushes = std::string(GetParam()) != "grpc";
  pb::StepStats stats = cluster.Run();
  // The lane is made beside the first steps.
  for (int i = 0; i < 10000 && Pushed(stats) != pushes; ++i) stats = cluster.Run();
  ASSERT_EQ(Pushed(stats), pushes);
  EXPECT_EQ(stats.dev_stats_size(), 2);  // each device once, with what it sent for and received
  timeline.Add(stats);
  const Trace trace(timeline.ToJson());
  std::vector<std::string> names;
  for (const auto& [pid, name] : trace.processes) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("ps/0", "worker/0"));
  ExpectWholeAndInOrder(trace);
  // At the sender and at the receiver; within what waited for it the way itself is shown too.
  EXPECT_EQ(trace.Of("X", "Transfer").size(), pushes ? 4u : 6u);
  const std::vector<json> calls = trace.Of("X", "Call");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["name"], absl::StrCat("RunGraph at ", kPs));
  EXPECT_EQ(trace.Process(calls[0]), "worker/0");
  EXPECT_EQ(trace.all["otherData"]["clock"], kPs);
  const json clock = trace.all["otherData"]["clocks"][kWorker];
  EXPECT_NEAR(clock["offset_us"].get<double>(), -10e6, clock["error_us"].get<double>() + 1);
  EXPECT_LT(clock["error_us"].get<double>(), 1e6);
  // Without it the tensors of the ps would come seconds before they are sent.
  EXPECT_THAT(stats.DebugString(), HasSubstr("RecvTensor"));
}

TEST(Timeline, OfOneProcessHasItsThreadsOnly) {
  Graph graph;
  GraphBuilder b(&graph);
  b.Op("Neg", {b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x")}, {}, "y");
  auto session = OpenSession({}, graph);
  RunMetadata metadata;
  std::vector<Tensor> results;
  ASSERT_EQ(session->Run({.trace = true}, {{"x", Tensor::Scalar(1.f)}}, {"y"}, {}, &results, &metadata),
            absl::OkStatus());
  Timeline timeline;
  timeline.Add(metadata.step_stats());
  const Trace trace(timeline.ToJson());
  EXPECT_EQ(trace.processes.size(), 1u);
  ASSERT_EQ(trace.Of("X", "Op").size(), 1u);
  EXPECT_EQ(trace.Of("X", "Op")[0]["args"]["node"], "y");
  EXPECT_GE(trace.Of("X", "Op")[0]["ts"].get<double>(), 0);
}

TEST(Timeline, ShowsWhateverItIsGiven) {
  EXPECT_TRUE(json::accept(Timeline().ToJson()));
  TimelinePart odd;
  odd.set_task("\xff\"\n");
  odd.set_begin_nanos(INT64_MIN);
  odd.set_end_nanos(INT64_MAX);
  auto* clock = odd.add_clocks();
  clock->set_task("\xff");
  clock->set_offset_nanos(INT64_MIN);
  clock->set_error_nanos(INT64_MAX);
  auto* device = odd.mutable_step_stats()->add_dev_stats();
  device->set_device("no device \xc3");
  for (const int64_t odd_time : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    for (const char* name : {"RecvTensor", "RunGraph", "x"}) {
      auto* event = device->add_node_stats();
      event->set_node_name(name);
      event->set_timeline_label(absl::StrCat("[1B] t from ", odd_time, " to \xfe"));
      event->set_all_start_micros(odd_time);
      event->set_all_end_rel_nanos(odd_time);
      event->set_scheduled_micros(odd_time);
      event->add_memory()->set_total_bytes(odd_time);
      *device->add_node_stats() = *event;
      device->mutable_node_stats(device->node_stats_size() - 1)->set_timeline_label("RunGraph at " + std::string(name));
    }
  }
  Timeline timeline;
  timeline.Add(odd);
  timeline.Add(odd);
  EXPECT_TRUE(json::accept(timeline.ToJson()));
}

TEST(MergeTimelines, JoinsWhatTheWorkersLeft) {
  SkewedCluster cluster;
  cluster.Run();
  const TempDirectory directory = TempDirectory::Make("timeline").value();
  EXPECT_EQ(MergeTimelines(directory.path()).status().code(), absl::StatusCode::kNotFound);
  TimelinePart part;
  part.set_task(kWorker);
  part.set_global_step(12);
  *part.mutable_step_stats() = cluster.Run();
  ASSERT_EQ(WriteTimelinePart(part, directory.path()), absl::OkStatus());
  // A second program ran a step of its own, at the ps.
  part.set_task("/job:worker/replica:0/task:1");
  part.clear_step_stats();
  part.set_begin_nanos(absl::ToUnixNanos(Clock::Real()->Now()));
  part.set_end_nanos(part.begin_nanos() + 1'000'000);
  ASSERT_EQ(WriteTimelinePart(part, directory.path()), absl::OkStatus());
  ASSERT_EQ(ReplaceFile(FileSystem::Posix(), directory.File("torn.timeline_part"), "\xff\xff"), absl::OkStatus());
  const std::string path = MergeTimelines(directory.path()).value();
  EXPECT_EQ(path, directory.File("timeline.json"));
  const Trace trace(ReadWholeFile(FileSystem::Posix(), path).value());
  EXPECT_EQ(trace.processes.size(), 3u);
  ExpectWholeAndInOrder(trace);
  ASSERT_EQ(trace.Of("X", "Step").size(), 1u);
  EXPECT_EQ(trace.Of("X", "Step")[0]["name"], "step 12");
  EXPECT_EQ(MergeTimelines(directory.File("missing")).status().code(), absl::StatusCode::kNotFound);
  const TempDirectory torn = TempDirectory::Make("timeline").value();
  ASSERT_EQ(ReplaceFile(FileSystem::Posix(), torn.File("torn.timeline_part"), "\xff\xff"), absl::OkStatus());
  EXPECT_EQ(MergeTimelines(torn.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
