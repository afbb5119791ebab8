// What steps do over every transport: the same.
#include <cstring>
#include <random>

#include "millrace/cluster/step/step_transport_testing.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Over, StepTransportTest, ::testing::Values("grpc", "tcp", "shm"), TransportName);

// Of any bits; of a bool, 0 or 1.
Tensor Random(DType dtype, const Shape& shape) {
  static std::mt19937 random(7);
  Tensor tensor(dtype, shape);
  if (dtype == DType::kString) {
    for (std::string& text : tensor.flat<std::string>())
      text = std::string(random() % 300, static_cast<char>(random()));
    return tensor;
  }
  auto* const bytes = static_cast<unsigned char*>(tensor.raw_data());
  for (size_t i = 0; i < tensor.TotalBytes(); ++i)
    bytes[i] = static_cast<unsigned char>(dtype == DType::kBool ? random() % 2 : random());
  return tensor;
}

bool Same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::kString) return a.flat<std::string>() == b.flat<std::string>();
  return a.TotalBytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.TotalBytes()) == 0;
}

TEST_P(StepTransportTest, TensorsOfEveryTypeAndSizeGoRoundTheCluster) {
  Start();
  std::vector<Feed> feeds;
  std::vector<std::string> fetches;
  size_t bytes = 0;
  for (int type = 1; type <= 23; ++type) {
    const auto dtype = static_cast<DType>(type);
    if (!IsKnown(dtype) || (!IsPlain(dtype) && dtype != DType::kString)) continue;
    // Nothing, one, some, and more than goes with others.
    for (const Shape& shape : {Shape({0, 3}), Shape(), Shape({2, 3}), Shape({30011})}) {
      const std::string name = absl::StrCat(DTypeName(dtype), "_", feeds.size());
      OnWorker(0);
      const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", dtype}}, "x_" + name);
      Endpoint at = b_.Op("Identity", {x});
      OnPs();
      at = b_.Op("Identity", {at});
      OnWorker(1);
      at = b_.Op("Identity", {at});
      OnWorker(0);
      b_.Op("Identity", {at}, {}, "y_" + name);
      feeds.emplace_back("x_" + name, Random(dtype, shape));
      fetches.push_back("y_" + name);
      bytes += feeds.back().second.TotalBytes();
    }
  }
  EXPECT_GE(feeds.size(), 21u * 4);
  Session* const session = Open();
  for (int round = 0; round < 3; ++round) {
    const StatusOr<std::vector<Tensor>> results = session->Run(feeds, fetches);
    ASSERT_EQ(results.status(), absl::OkStatus());
    for (size_t i = 0; i < feeds.size(); ++i) EXPECT_TRUE(Same((*results)[i], feeds[i].second)) << fetches[i];
  }
  // They did leave.
  if (has_lane()) {
    EXPECT_GT(PeerOf(worker(), ps()).bytes_sent, 3 * bytes / 2);
    EXPECT_GT(PeerOf(worker(), worker(1)).bytes_received, 3 * bytes / 2);
  }
  EXPECT_TRUE(UsesTransport());
  ExpectQuiet();
}

TEST_P(StepTransportTest, AHundredMegabytesAreReadAndAddedTo) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  const int64_t size = 1'000'000;
#else
  const int64_t size = 25'000'000;
#endif
  Start(1);
  OnPs();
  const Endpoint w = Variable("w", DType::kFloat, Shape({size}), Filled(Shape({size}), 0));
  OnWorker();
  const Endpoint plus_one = b_.Add(Named("w/read"), b_.Scalar(1.f));
  b_.Op("Max", {Named("w/read"), b_.Ints({0})}, {}, "max");
  b_.Op("Min", {Named("w/read"), b_.Ints({0})}, {}, "min");
  const Endpoint ones = b_.Sub(plus_one, Named("w/read"));
  OnPs();
  b_.AddNode("AssignAddVariableOp", {w, ones}, {}, "add");
  Session* const session = Open();
  ASSERT_EQ(session->RunTargets({"w/init"}), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(session->RunTargets({"add"}), absl::OkStatus());
    const std::vector<Tensor> read = session->Run({"min", "max"}).value();
    EXPECT_EQ(read[0].scalar<float>(), i + 1);
    EXPECT_EQ(read[1].scalar<float>(), i + 1);
  }
  if (has_lane()) {
    EXPECT_GE(PeerOf(worker(), ps()).bytes_received, static_cast<uint64_t>(size) * 4 * 6);
  }
  EXPECT_TRUE(UsesTransport());
  ExpectQuiet();
}

TEST_P(StepTransportTest, TrainingOfTwoWorkersLosesNoUpdate) {
  Start();
  OnPs();
  const Endpoint w = Variable("w", DType::kFloat, Shape({64}), Filled(Shape({64}), 10));
  const Endpoint count = Variable("count", DType::kFloat, Shape(), Filled(Shape(), 0));
  for (int i = 0; i < 2; ++i) {
    OnWorker(i);
    const Endpoint gradient = b_.Mul(Named("w/read"), b_.Scalar(2.f));  // of the square
    b_.Op("Max", {Named("w/read"), b_.Ints({0})}, {}, absl::StrCat("max", i));
    OnPs();
    b_.AddNode("ResourceApplyGradientDescent", std::vector<Endpoint>{w, b_.Scalar(0.01f), gradient}, {},
               absl::StrCat("train", i));
    b_.control_inputs = {graph_.FindNode(absl::StrCat("train", i))};
    b_.AddNode("AssignAddVariableOp", {count, b_.Scalar(1.f)}, {}, absl::StrCat("count", i));
    b_.control_inputs = {};
  }
  Session* const session = Open();
  ASSERT_EQ(session->RunTargets({"w/init", "count/init"}), absl::OkStatus());
  const auto other = OpenSession({.target = worker(1).target()}, graph_);
  const auto train = [](Session* by, int index) {
    for (int i = 0; i < 200; ++i) EXPECT_EQ(by->RunTargets({absl::StrCat("count", index)}), absl::OkStatus());
  };
  std::thread second([&] { train(other.get(), 1); });
  train(session, 0);
  second.join();
  const std::vector<Tensor> end = session->Run({"count/read", "max0"}).value();
  EXPECT_EQ(end[0].scalar<float>(), 400);
  EXPECT_LT(end[1].scalar<float>(), 1);
  EXPECT_TRUE(UsesTransport());
  ExpectQuiet();
}

TEST_P(StepTransportTest, LoopsAndBranchesSpanTasks) {
  Start();
  OnWorker();
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "x");
  Node* const branch = b_.AddNode("Switch", {x, b_.Op("Greater", {x, b_.Scalar(3.f)})});
  OnWorker(1);
  const Endpoint large = b_.Mul(branch->output(1), b_.Scalar(10.f));
  OnPs();
  const Endpoint small = b_.Neg(branch->output(0));
  OnWorker();
  b_.Op("Merge", {small, large}, {}, "cond");
  // Doubled on worker 1, then one more on the ps, while less than 1000.
  const auto enter = [&](Endpoint value, bool constant) {
    return b_.Op("Enter", {value}, {{"frame_name", "loop"}, {"is_constant", constant}});
  };
  const Endpoint start = enter(x, false), limit = enter(b_.Scalar(1000.f), true), one = enter(b_.Scalar(1.f), true);
  const Endpoint merge = b_.Op("Merge", {start, start});
  Node* const gate = b_.AddNode("Switch", {merge, b_.Op("LoopCond", {b_.Op("Less", {merge, limit})})});
  OnWorker(1);
  const Endpoint doubled = b_.Add(gate->output(1), gate->output(1));
  OnPs();
  const Endpoint next = b_.Op("NextIteration", {b_.Add(doubled, one)});
  graph_.SetInput(merge.node, 1, next);
  OnWorker();
  b_.Op("Exit", {gate->output(0)}, {}, "loop");
  Session* const session = Open();
  for (int i = 0; i < 20; ++i) {
    const auto value = static_cast<float>(i);
    float expected = value;
    while (expected < 1000) expected = 2 * expected + 1;
    const StatusOr<std::vector<Tensor>> got = session->Run({{"x", Tensor::Scalar(value)}}, {"cond", "loop"});
    ASSERT_EQ(got.status(), absl::OkStatus());
    EXPECT_EQ((*got)[0].scalar<float>(), value > 3 ? 10 * value : -value);
    EXPECT_EQ((*got)[1].scalar<float>(), expected);
  }
  EXPECT_TRUE(UsesTransport());
  ExpectQuiet();
}

TEST_P(StepTransportTest, AnErrorAtAPeerIsTheStepsAndTheNextOneRuns) {
  Start();
  OnWorker();
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  OnPs();
  const Endpoint checked = b_.Op("CheckNumerics", {b_.Neg(x)}, {{"message", "found it"}}, "check");
  OnWorker(1);
  b_.Op("Neg", {checked}, {}, "y");
  Session* const session = Open();
  for (int i = 0; i < 10; ++i) {
    const Status status = session->Run({{"x", Tensor::Scalar(0.f / 0.f)}}, {"y"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("found it"), HasSubstr("check"), HasSubstr("/job:ps")));
    EXPECT_EQ(session->Run({{"x", Tensor::Scalar(2.f)}}, {"y"}).value()[0].scalar<float>(), 2);
  }
  EXPECT_TRUE(UsesTransport());
  ExpectQuiet();
}

// A step that waits at the ps for an element that nobody gives.
class BlockedStepTest : public StepTransportTest {
 protected:
  Session* OpenBlocked(ServerOptions options = {}) {
    Start(2, options);
    AddBlockedStep(&b_, kPs, WorkerDevice(1));
    return Open();
  }
  void AwaitBlocked() {
    EXPECT_TRUE(Await([&] {
      for (const Wait& wait : ps().worker()->ListWaits()) {
        if (wait.node == "take") return true;
      }
      return false;
    }));
  }
};

INSTANTIATE_TEST_SUITE_P(Over, BlockedStepTest, ::testing::Values("grpc", "tcp", "shm"), TransportName);

TEST_P(BlockedStepTest, ACancelledStepEndsEverywhere) {
  Session* const session = OpenBlocked();
  for (int i = 0; i < 5; ++i) {
    CancellationManager cancellation;
    Status status;
    std::thread run([&] {
      std::vector<Tensor> results;
      status = session->Run({.cancellation = &cancellation}, {}, std::vector<std::string>{"y"}, {}, &results, nullptr);
    });
    AwaitBlocked();
    cancellation.StartCancel();
    run.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    ExpectQuiet();
  }
  EXPECT_TRUE(UsesTransport());
}

TEST_P(BlockedStepTest, AClosedSessionEndsItsSteps) {
  Session* const session = OpenBlocked();
  BackgroundRun first(session, "y"), second(session, "y");
  AwaitBlocked();
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(first.End().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.End().code(), absl::StatusCode::kCancelled);
  ExpectQuiet();
}

TEST_P(BlockedStepTest, AUsersTimeLimitEndsItEverywhere) {
  Session* const session = OpenBlocked();
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) {
    const Status status =
        session->Run({.timeout = absl::Milliseconds(200)}, {}, std::vector<std::string>{"y"}, {}, &results, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    ExpectQuiet();
  }
  EXPECT_TRUE(UsesTransport());
}

TEST_P(BlockedStepTest, APeerThatStopsIsNamed) {
  Session* const session = OpenBlocked();
  BackgroundRun run(session, "y");
  AwaitBlocked();
  servers_[0]->Stop();
  const Status status = run.End();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
}

}  // namespace
}  // namespace millrace
