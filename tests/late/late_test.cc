// Programs on a GPU, where there is none: see README.md.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"
#include "tests/late/late_device.h"
#include "tests/late/late_memory.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kGpu[] = "/device:GPU:0";
constexpr char kCpu0[] = "/device:CPU:0";

class LateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { late::UseLateGpus(2); }
  LateTest() : b_(&graph_) {}

  Session* Open(SessionOptions options = {}) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    session_ = Session::Create(std::move(options)).value();
    const Status extended = session_->Extend(graph_);
    EXPECT_TRUE(extended.ok()) << extended;
    return session_.get();
  }
  // Runs the step and says where its nodes ran: "y=GPU:0".
  std::vector<std::string> Places(const std::vector<std::string>& fetches, const std::vector<Feed>& feeds = {},
                                  std::vector<Tensor>* fetched = nullptr) {
    RunOptions options;
    options.trace = true;
    std::vector<Tensor> results;
    RunMetadata metadata;
    const Status status =
        session_->Run(options, feeds, fetches, {}, fetched != nullptr ? fetched : &results, &metadata);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> places;
    for (const auto& device : metadata.step_stats().dev_stats()) {
      for (const auto& node : device.node_stats())
        places.push_back(absl::StrCat(node.node_name(), "=", device.device().substr(device.device().rfind(':') - 3)));
    }
    return places;
  }
  float Fetch(const std::string& name) {
    const auto results = session_->Run({name});
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? (*results)[0].scalar<float>() : -1;
  }
  Status RunTarget(const std::string& name) {
    std::vector<Tensor> none;
    return session_->Run(RunOptions(), {}, {}, {name}, &none, nullptr);
  }
  Endpoint RefVariable(const std::string& name) {
    return b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, name);
  }

  Graph graph_;
  GraphBuilder b_;
  std::unique_ptr<Session> session_;
};

TEST_F(LateTest, NodesWithoutADeviceRunOnTheFirstGpu) {
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "x");
  b_.Op("Mul", {x, x}, {}, "y");
  b_.Op("AsString", {x}, {{"T", DType::kFloat}}, "text");
  b_.device = kCpu0;
  b_.Op("Add", {x, x}, {}, "z");
  Open();
  std::vector<Tensor> results;
  const std::vector<std::string> places = Places({"y:0", "text:0", "z:0"}, {{"x:0", Tensor::Scalar(3.0f)}}, &results);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].scalar<float>(), 9);
  EXPECT_EQ(results[1].scalar<std::string>().substr(0, 2), "3.");
  EXPECT_EQ(results[2].scalar<float>(), 6);
  EXPECT_THAT(places, Contains("y=GPU:0"));
  EXPECT_THAT(places, Contains("text=CPU:0"));
  EXPECT_THAT(places, Contains("z=CPU:0"));
}

TEST_F(LateTest, NoGpusArePossible) {
  b_.Op("Mul", {b_.Scalar(2.0f), b_.Scalar(3.0f)}, {}, "y");
  SessionOptions options;
  options.gpu_devices = 0;
  Open(options);
  EXPECT_EQ(session_->ListDevices().size(), 1u);
  EXPECT_EQ(Fetch("y:0"), 6);
}

// TensorFlow 1's ordinary variables: the reference is the host's, the value the device's.
TEST_F(LateTest, AReferenceVariableLivesOnTheGpu) {
  b_.device = kGpu;
  const Endpoint v = RefVariable("v");
  b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "set");
  const Endpoint add = b_.Op("AssignAdd", {v, b_.Scalar(1.0f)}, {}, "add");
  b_.Op("Mul", {v, b_.Scalar(10.0f)}, {}, "there");
  b_.device = kCpu0;
  const Endpoint before = b_.Op("Identity", {v}, {}, "before");
  b_.control_inputs = {add.node};
  b_.Op("Identity", {v}, {}, "after");
  b_.control_inputs.clear();
  graph_.AddControlInput(add.node, before.node);
  Open();
  ASSERT_TRUE(RunTarget("set").ok());
  EXPECT_EQ(Fetch("there:0"), 50);
  const auto both = session_->Run({"before:0", "after:0"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)[0].scalar<float>(), 5);
  EXPECT_EQ((*both)[1].scalar<float>(), 6);
  EXPECT_EQ(Fetch("v:0"), 6);
}

// As within a device: a reader that comes after an update sees it, also through an Identity that came before.
TEST_F(LateTest, AReaderOnTheGpuSeesAnUpdateOnTheCpuThatItComesAfter) {
  b_.device = kCpu0;
  const Endpoint v = RefVariable("v");
  b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "set");
  const Endpoint add = b_.Op("AssignAdd", {v, b_.Scalar(1.0f)}, {}, "add");
  const Endpoint read = b_.Op("Identity", {v}, {}, "read");
  const Endpoint of_add = b_.Op("Mul", {add, b_.Scalar(100.0f)}, {}, "of_add");
  b_.device = kGpu;
  b_.control_inputs = {add.node};
  b_.Op("Sub", {read, b_.Scalar(1.0f)}, {}, "after");
  b_.control_inputs.clear();
  b_.Op("Add", {of_add, read}, {}, "by_data");
  Open();
  ASSERT_TRUE(RunTarget("set").ok());
  const auto got = session_->Run({"after:0", "by_data:0"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].scalar<float>(), 5);
  EXPECT_EQ((*got)[1].scalar<float>(), 606);
}

TEST_F(LateTest, OptimizersWithSlotsRunOnTheGpuAlsoWhileSomebodyHoldsTheValue) {
  b_.device = kGpu;
  std::vector<Endpoint> handles;
  for (const char* name : {"w", "m"}) {
    handles.push_back(b_.Op("VarHandleOp", {},
                            {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape({2}))}, {"shared_name", name}},
                            name));
  }
  const AttrList type = {{"dtype", DType::kFloat}};
  b_.Op("AssignVariableOp", {handles[0], b_.Const(Tensor::Of<float>({1, 2}))}, type, "w_set");
  b_.Op("AssignVariableOp", {handles[1], b_.Const(Tensor::Of<float>({0, 0}))}, type, "m_set");
  const Endpoint held = b_.Op("ReadVariableOp", {handles[0]}, type, "held");
  const Endpoint held_m = b_.Op("ReadVariableOp", {handles[1]}, type, "held_m");
  b_.control_inputs = {held.node, held_m.node};
  const Endpoint step =
      b_.Op("ResourceApplyMomentum",
            {handles[0], handles[1], b_.Scalar(0.5f), b_.Const(Tensor::Of<float>({1, 1})), b_.Scalar(0.9f)},
            {{"T", DType::kFloat}}, "step");
  b_.control_inputs = {step.node};
  b_.Op("AddV2", {held, b_.Op("ReadVariableOp", {handles[0]}, type, "after")}, {}, "sum");
  b_.control_inputs.clear();
  b_.Op("Identity", {held_m}, {}, "held_m_too");
  Open();
  ASSERT_TRUE(RunTarget("w_set").ok());
  ASSERT_TRUE(RunTarget("m_set").ok());
  const auto got = session_->Run({"sum:0", "held_m_too:0"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].data<float>()[0], 1 + 0.5f);
  EXPECT_EQ((*got)[0].data<float>()[1], 2 + 1.5f);
  EXPECT_EQ((*got)[1].data<float>()[0], 0);
}

// An update that another thread's reader does not wait for: it must find the reader holding the value, or done.
TEST(LateStream, AReaderLetsGoOfItsInputsAfterTheUpdateThatIsUnderWay) {
  late::LateStream& stream = late::LateCard::Get(0)->stream();
  Notification begun, let_go;
  bool kept = false;
  std::thread update([&] {
    const Status status = stream.Run([&] {
      begun.Notify();
      kept = !let_go.WaitFor(absl::Milliseconds(100));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  });
  begun.Wait();
  stream.EnqueueReader([] { return absl::OkStatus(); });
  let_go.Notify();
  update.join();
  EXPECT_TRUE(kept);
}

TEST_F(LateTest, RowsOfAVariableAreUpdatedOnTheGpuWhileReadersKeepWhatTheyHave) {
  b_.device = kGpu;
  const AttrList type = {{"dtype", DType::kFloat}};
  const auto handle = [&](const char* name) {
    return b_.Op("VarHandleOp", {},
                 {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape({3, 2}))}, {"shared_name", name}}, name);
  };
  const Endpoint v = handle("table"), accum = handle("accum");
  // The value is a part of another tensor.
  const Endpoint more = b_.Const(Tensor::Of<float>({5, 2}, {9, 9, 1, 1, 1, 1, 1, 1, 9, 9}));
  const Endpoint ones =
      b_.Op("Slice", {more, b_.Const(Tensor::Of<int32_t>({2}, {1, 0})), b_.Const(Tensor::Of<int32_t>({2}, {3, 2}))});
  b_.AddNode("AssignVariableOp", {v, ones}, {}, "init");
  b_.AddNode("AssignVariableOp", {accum, ones}, {}, "init_accum");
  const Endpoint rows = b_.Const(Tensor::Of<int32_t>({3}, {2, 0, 2}));
  const Endpoint updates = b_.Const(Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const Endpoint held = b_.Op("ReadVariableOp", {v}, type, "held");
  b_.control_inputs = {held.node};
  Node* const add = b_.AddNode("ResourceScatterAdd", {v, rows, updates}, {}, "add");
  b_.control_inputs = {add};
  const Endpoint after = b_.Op("ReadVariableOp", {v}, type, "after");
  b_.Op("ResourceGather", {v, rows}, type, "gather");
  b_.control_inputs.clear();
  b_.Op("AddV2", {held, b_.Op("AddV2", {after, after})}, {}, "sum");
  b_.AddNode("ResourceSparseApplyAdagrad", {v, accum, b_.Const(Tensor::Scalar(0.0f)), updates, rows}, {}, "adagrad");
  b_.Op("ReadVariableOp", {accum}, type, "read_accum");
  Open();
  ASSERT_TRUE(RunTarget("init").ok());
  ASSERT_TRUE(RunTarget("init_accum").ok());
  std::vector<Tensor> got;
  const std::vector<std::string> places = Places({"sum:0", "gather:0"}, {}, &got);
  EXPECT_THAT(places, Contains("add=GPU:0"));
  EXPECT_THAT(places, Contains("gather=GPU:0"));
  EXPECT_THAT(got[0].flat<float>(), ElementsAre(1 + 8, 1 + 10, 3, 3, 1 + 14, 1 + 18));
  EXPECT_THAT(got[1].flat<float>(), ElementsAre(7, 9, 4, 5, 7, 9));
  // Now the variable is one of updates by rows, and a reader has a copy.
  Places({"sum:0"}, {}, &got);
  EXPECT_THAT(got[0].flat<float>(), ElementsAre(4 + 14, 5 + 18, 3, 3, 7 + 26, 9 + 34));
  // Variable and slot at once.
  ASSERT_TRUE(RunTarget("adagrad").ok());
  Places({"read_accum:0"}, {}, &got);
  EXPECT_THAT(got[0].flat<float>(), ElementsAre(1 + 9, 1 + 16, 1, 1, 1 + 1 + 25, 1 + 4 + 36));
}

TEST_F(LateTest, ArithmeticOnShapesIsTheHosts) {
  b_.device = kGpu;
  const Endpoint x = b_.Const(Tensor::Of<float>(Shape({2, 3}), {1, 2, 3, 4, 5, 6}), "x");
  const Endpoint shape = b_.Op("Shape", {x}, {{"T", DType::kFloat}}, "shape");
  const Endpoint rows = b_.Op("Prod", {shape, b_.Const(Tensor::Of<int32_t>({0}))}, {}, "count");
  const Endpoint wanted = b_.Op("Pack", {rows, b_.Const(Tensor::Scalar<int32_t>(1))}, {}, "wanted");
  b_.Op("Reshape", {x, wanted}, {}, "tall");
  SessionOptions options;
  options.passes = PassOptions::None();
  Open(options);
  for (const std::string& place : Places({"tall:0"})) {
    // The only copies are of x's own: in, if any, and of the result, out.
    EXPECT_FALSE(absl::StrContains(place, "_copy") && !absl::StrContains(place, "tall/_copy") &&
                 !absl::StrContains(place, "x/_copy"))
        << place;
  }
}

TEST_F(LateTest, FusionsForTheCpuLeaveTheGpusNodesAlone) {
  b_.device = kGpu;
  const Endpoint x = b_.Const(Tensor::Of<float>(Shape({1, 1, 2, 2}), {1, 2, 3, 4}));
  const Endpoint one = b_.Const(Tensor::Of<float>({1, 1})), zero = b_.Const(Tensor::Of<float>({0, 0}));
  const Endpoint norm = b_.Op("FusedBatchNormV3", {x, one, zero, zero, one}, {{"is_training", false}}, "norm");
  b_.Op("Relu", {norm}, {}, "relu");
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape({2, 2}))}}, "v");
  b_.Op("Assign", {v, b_.Const(Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4}))}, {}, "set");
  b_.Op("GatherV2", {b_.Op("Identity", {v}), b_.Const(Tensor::Of<int32_t>({1})), b_.Const(Tensor::Scalar<int32_t>(0))},
        {}, "rows");
  Open();
  ASSERT_TRUE(RunTarget("set").ok());
  const std::vector<std::string> places = Places({"relu:0", "rows:0"});
  EXPECT_THAT(places, Contains("relu=GPU:0"));
  EXPECT_THAT(places, Contains("rows=GPU:0"));
}

TEST_F(LateTest, ATypeWithoutAKernelIsTheCpusUnderSoftPlacementAndAnErrorWithoutIt) {
  b_.device = kGpu;
  b_.Op("StringJoin", {b_.Const(Tensor::Scalar("a")), b_.Const(Tensor::Scalar("b"))}, {}, "text");
  SessionOptions options;
  options.allow_soft_placement = true;
  Open(options);
  EXPECT_THAT(Places({"text:0"}), Contains("text=CPU:0"));
  Open();
  const Status status = session_->Run({"text:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node text}}"));
}

// The work of a step is a part of it, whether or not anything is fetched.
TEST_F(LateTest, AnErrorOfTheDeviceFailsTheStepThatCausedIt) {
  b_.device = kGpu;
  const Endpoint x = b_.Const(Tensor::Of<float>({1, 2, 3}));
  // A shape that only the values show to be wrong.
  b_.Op("GatherV2", {x, b_.Const(Tensor::Of<int64_t>({7})), b_.Const(Tensor::Scalar<int32_t>(0))}, {}, "outside");
  b_.Op("Neg", {x}, {}, "fine");
  SessionOptions options;
  options.passes = PassOptions::None();
  Open(options);
  const Status status = RunTarget("outside");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node outside}}"));
  EXPECT_TRUE(RunTarget("fine").ok());
}

TEST_F(LateTest, TwoGpusExchangeThroughTheHost) {
  b_.device = kGpu;
  const Endpoint x = b_.Op("Mul", {b_.Scalar(2.0f), b_.Scalar(3.0f)}, {}, "x");
  b_.device = "/device:GPU:1";
  b_.Op("Add", {x, x}, {}, "y");
  Open();
  EXPECT_EQ(Fetch("y:0"), 12);
  EXPECT_THAT(Places({"y:0"}), Contains("y=GPU:1"));
}

// Servers know their devices under the names of the cluster.
TEST_F(LateTest, AServerRunsNodesOnItsGpu) {
  const auto server = Server::CreateLocalServer({}).value();
  EXPECT_THAT(server->devices(), Contains(EndsWith("/device:GPU:0")));
  b_.device = kGpu;
  const Endpoint v = RefVariable("v");
  b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "set");
  b_.Op("AssignAdd", {v, b_.Scalar(1.0f)}, {}, "add");
  for (const bool over_rpc : {false, true}) {
    SessionOptions options;
    options.target = server->target();
    options.config.mutable_rpc_options()->set_use_rpc_for_inprocess_master(over_rpc);
    Open(options);
    ASSERT_TRUE(RunTarget("set").ok());
    const Status status = RunTarget("add");
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Fetch("v:0"), 6);
  }
}

TEST_F(LateTest, ASessionAtAServerMayDoWithoutGpus) {
  const auto server = Server::CreateLocalServer({}).value();
  b_.Op("Mul", {b_.Scalar(2.0f), b_.Scalar(3.0f)}, {}, "y");
  SessionOptions options;
  options.target = server->target();
  options.passes = PassOptions::None();
  Open(options);
  EXPECT_THAT(Places({"y:0"}), Contains("y=GPU:0"));
  (*options.config.mutable_device_count())["GPU"] = 0;
  Open(options);
  EXPECT_THAT(Places({"y:0"}), Contains("y=CPU:0"));
}

// GPUs as ConfigProto.gpu_options lays them out; each test begins with cards that nobody has laid out.
class GpuOptionsTest : public LateTest {
 protected:
  GpuOptionsTest() { late::UseLateGpus(1); }
  ~GpuOptionsTest() override { late::UseLateGpus(2); }

  SessionOptions TwoPerCard() {
    SessionOptions options;
    options.config.mutable_gpu_options()->mutable_experimental()->set_num_virtual_devices_per_gpu(2);
    return options;
  }
  SessionOptions Limited(float megabytes) {
    SessionOptions options;
    auto* const card = options.config.mutable_gpu_options()->mutable_experimental()->add_virtual_devices();
    card->add_memory_limit_mb(megabytes);
    return options;
  }
  static std::vector<DeviceInfo> Gpus(Session& session) {
    std::vector<DeviceInfo> gpus = session.ListDeviceInfo().value();
    gpus.erase(std::remove_if(gpus.begin(), gpus.end(), [](const DeviceInfo& d) { return d.type != "GPU"; }),
               gpus.end());
    return gpus;
  }
};

TEST_F(GpuOptionsTest, OneCardIsTwoDevices) {
  b_.device = kGpu;
  const Endpoint x = b_.Op("Mul", {b_.Scalar(2.0f), b_.Scalar(3.0f)}, {}, "x");
  b_.device = "/device:GPU:1";
  b_.Op("Add", {x, x}, {}, "y");
  SessionOptions options = TwoPerCard();
  options.passes = PassOptions::None();
  Open(options);
  EXPECT_THAT(Gpus(*session_), SizeIs(2));
  std::vector<Tensor> results;
  const std::vector<std::string> places = Places({"y:0"}, {}, &results);
  EXPECT_THAT(places, Contains("x=GPU:0"));
  EXPECT_THAT(places, Contains("y=GPU:1"));
  EXPECT_EQ(results[0].scalar<float>(), 12);

  const auto later = Session::Create({}).value();
  EXPECT_THAT(Gpus(*later), SizeIs(2)) << "a later session has the same devices";
  const auto other = Session::Create(Limited(100));
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  EXPECT_THAT(other.status().message(), HasSubstr("the GPUs of this process are GPU:0 on card 0 (limit"));
}

TEST_F(GpuOptionsTest, AnOpAboveTheLimitOfItsGpuFailsAndTheRestGoesOn) {
  const Endpoint n = b_.Op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape(Shape({1}))}}, "n");
  b_.device = kGpu;
  const Endpoint large = b_.Op("Fill", {n, b_.Scalar(1.0f)}, {}, "large");
  b_.Op("Slice", {large, b_.Const(Tensor::Of<int32_t>({1}, {0})), b_.Const(Tensor::Of<int32_t>({1}, {1}))}, {}, "y");
  SessionOptions options = Limited(1);
  options.passes = PassOptions::None();
  Open(options);
  const auto run = [&](int32_t size) { return session_->Run({{"n:0", Tensor::Of<int32_t>({1}, {size})}}, {"y:0"}); };
  for (int i = 0; i < 20; ++i) {  // each takes 800 kB and gives them back
    const auto small = run(200'000);
    ASSERT_TRUE(small.ok()) << small.status();
  }
  const auto result = run(300'000);
  EXPECT_TRUE(absl::IsResourceExhausted(result.status())) << result.status();
  EXPECT_THAT(result.status().message(), HasSubstr("{{node large}}"));
  EXPECT_THAT(result.status().message(), HasSubstr("of the 1048576 bytes that it may have"));
  EXPECT_TRUE(run(200'000).ok());
}

// Who has the memory that a tensor does not find: variables by their names, the rest by their nodes.
TEST_F(GpuOptionsTest, AnOpThatFindsNoMemorySaysHowMuchIsFreeAndWhoHoldsTheMost) {
  const auto filled = [&](const std::string& name, int32_t size) {
    return b_.Op("Fill", {b_.Const(Tensor::Of<int32_t>({1}, {size})), b_.Scalar(1.0f)}, {}, name);
  };
  b_.device = kGpu;
  const auto shape = [](int64_t size) { return PartialShape(Shape({size})); };
  const Endpoint kernel = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", shape(100'000)}}, "kernel");
  b_.Op("Assign", {kernel, filled("ones", 100'000)}, {}, "set");
  const Endpoint handle =
      b_.Op("VarHandleOp", {},
            {{"dtype", DType::kFloat}, {"shape", shape(50'000)}, {"shared_name", std::string("bias")}}, "bias");
  b_.Op("AssignVariableOp", {handle, filled("more_ones", 50'000)}, {{"dtype", DType::kFloat}}, "set_bias");
  const Endpoint held = filled("held", 30'000);
  b_.control_inputs = {held.node};
  const Endpoint large = filled("large", 100'000);
  b_.control_inputs.clear();
  b_.Op("Slice", {large, b_.Const(Tensor::Of<int32_t>({1}, {0})), b_.Const(Tensor::Of<int32_t>({1}, {1}))}, {}, "y");
  b_.Op("Slice", {held, b_.Const(Tensor::Of<int32_t>({1}, {0})), b_.Const(Tensor::Of<int32_t>({1}, {1}))}, {}, "z");
  SessionOptions options = Limited(1);
  options.passes = PassOptions::None();
  Open(options);
  ASSERT_TRUE(RunTarget("set").ok());
  ASSERT_TRUE(RunTarget("set_bias").ok());
  const Status status = session_->Run({"y:0", "z:0"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node large}}"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(" are free; the largest holders are variable kernel (400000 bytes), "
                        "variable bias (200000 bytes), node held (120000 bytes)"));
}

TEST_F(GpuOptionsTest, AServersLimitIsItsDevices) {
  const auto server = Server::CreateLocalServer({.gpu_memory_limit = size_t{3} << 30}).value();
  SessionOptions options;
  options.target = server->target();
  const auto session = Session::Create(options).value();
  const std::vector<DeviceInfo> gpus = Gpus(*session);
  ASSERT_THAT(gpus, SizeIs(1));
  EXPECT_EQ(gpus[0].memory_limit, int64_t{3} << 30);

  const std::vector<TaskView> tasks = AskCluster(server->target().substr(strlen("grpc://")), absl::Seconds(60));
  ASSERT_THAT(tasks, SizeIs(1));
  ASSERT_EQ(tasks[0].status.devices_size(), 2);
  EXPECT_EQ(tasks[0].status.devices(1).model(), "late");
  EXPECT_EQ(tasks[0].status.devices(1).memory_limit_bytes(), int64_t{3} << 30);
}

TEST_F(GpuOptionsTest, WishesThatCannotBeMetAreErrors) {
  const auto error = [](const std::function<void(pb::GPUOptions*)>& wish) {
    SessionOptions options;
    wish(options.config.mutable_gpu_options());
    const auto session = Session::Create(options);
    ServerOptions server_options;
    *server_options.default_config.mutable_gpu_options() = options.config.gpu_options();
    EXPECT_EQ(Server::CreateLocalServer(server_options).status().message(), session.status().message());
    EXPECT_TRUE(absl::IsInvalidArgument(session.status())) << session.status();
    return std::string(session.status().message());
  };
  EXPECT_THAT(error([](auto* gpu) { gpu->set_visible_device_list("0,x"); }), HasSubstr("'x' is no number of a GPU"));
  EXPECT_THAT(error([](auto* gpu) { gpu->set_visible_device_list("1"); }),
              HasSubstr("the list of GPUs names 1, and there is only 1"));
  EXPECT_THAT(error([](auto* gpu) { gpu->set_per_process_gpu_memory_fraction(1.2); }), HasSubstr("is 1.2"));
  EXPECT_THAT(error([](auto* gpu) { gpu->mutable_experimental()->set_num_virtual_devices_per_gpu(-1); }),
              HasSubstr("on each card is -1"));
  EXPECT_THAT(error([](auto* gpu) {
                auto* const card = gpu->mutable_experimental()->add_virtual_devices();
                card->add_memory_limit_mb(1);
                card->add_memory_limit_mb(1);
                card->add_priority(0);
              }),
              HasSubstr("has 2 memory_limit_mb and 1 priority"));
  EXPECT_THAT(error([](auto* gpu) { gpu->mutable_experimental()->add_virtual_devices()->add_memory_limit_mb(20'000); }),
              HasSubstr("have more memory than its 17179869184 bytes"));
  EXPECT_THAT(error([](auto* gpu) { gpu->mutable_experimental()->add_virtual_devices()->add_memory_limit_mb(-1); }),
              HasSubstr("has the memory_limit_mb -1"));
}

// Traced steps do: there may be more of them than threads for callbacks.
TEST_F(LateTest, CallbacksOfTheStreamMayWaitForIt) {
  late::LateStream& stream = late::LateCard::Get(0)->stream();
  constexpr int kCallbacks = 8;
  std::atomic<int> left = kCallbacks;
  Notification all;
  for (int i = 0; i < kCallbacks; ++i) {
    stream.WhenDone([&](Status) {
      EXPECT_TRUE(stream.Synchronize().ok());
      if (--left == 0) all.Notify();
    });
  }
  all.Wait();
}

using LateDeathTest = LateTest;

TEST_F(LateDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const Tensor there(DType::kFloat, Shape({4}), late::LateCard::Get(0));
  EXPECT_TRUE(IsDeviceMemory(there));
  EXPECT_DEATH(*const_cast<Tensor&>(there).data<float>() = 1, "");
}

}  // namespace
}  // namespace millrace
