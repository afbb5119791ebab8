// A worker that reads slowly, or not at all: stopped, in a process of its own.
#include <fstream>
#include <thread>

#include "absl/strings/str_split.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/cluster/step/step_transport_testing.h"

namespace millrace {
namespace {

constexpr int64_t kReaderFloats = 5'000'000;
constexpr int kReads = 4;  // under way at each moment

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// A ps and two workers at the ports of `text`: "TRANSPORT PS WORKER0 WORKER1".
ClusterSpec ThreeTasks(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  return ClusterSpec::Of(
             {{"ps", {"localhost:" + words[1]}}, {"worker", {"localhost:" + words[2], "localhost:" + words[3]}}})
      .value();
}

// The variable on the ps, and its largest element on a worker.
void Build(GraphBuilder* b, int reader) {
  b->device = "/job:ps/task:0/device:CPU:0";
  const AttrList dtype = {{"dtype", DType::kFloat}};
  const Endpoint w =
      b->Op("VarHandleOp", {},
            {{"dtype", DType::kFloat}, {"shape", PartialShape({kReaderFloats})}, {"shared_name", "w"}}, "w");
  const Endpoint ones = b->Op("Fill", {b->Const(Tensor::Of<int64_t>({kReaderFloats})), b->Scalar(1.f)},
                              {{"index_type", DType::kInt64}}, "ones");
  b->AddNode("AssignVariableOp", {w, ones}, dtype, "init");
  b->AddNode("AssignAddVariableOp", {w, ones}, dtype, "add");
  const Endpoint value = b->Op("ReadVariableOp", {w}, dtype, "value");
  b->device = absl::StrCat("/job:worker/task:", reader, "/device:CPU:0");
  b->Op("Max", {value, b->Ints({0})}, {}, "max");
  ASSERT_EQ(b->status(), absl::OkStatus());
}

TEST(SlowReaderChild, ReadsWithoutEnd) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "for other tests";
  const std::string text = ChildProcess::Argument();
  const auto server =
      Server::Start(ThreeTasks(text), "worker", 1, {.step_transport = text.substr(0, text.find(' '))}).value();
  Graph graph;
  GraphBuilder b(&graph);
  Build(&b, 1);
  const auto session = OpenSession({.target = server->target()}, graph);
  ChildProcess::SayPort(server->port());
  std::vector<std::thread> readers;
  for (int i = 0; i < kReads; ++i) {
    readers.emplace_back([&] {
      for (;;) session->Run({"max"}).IgnoreError();
    });
  }
  for (std::thread& reader : readers) reader.join();
}

class SlowReaderTest : public StepTransportTest {};
INSTANTIATE_TEST_SUITE_P(Over, SlowReaderTest, ::testing::Values("grpc", "tcp", "shm"), TransportName);

TEST_P(SlowReaderTest, AWorkerThatIsStoppedWhileItReadsHoldsUpNeitherThePsNorOthers) {
  const std::vector<int> ports = FreePorts(3);
  const std::string text = absl::StrCat(transport_, " ", ports[0], " ", ports[1], " ", ports[2]);
  ServerOptions options;
  options.step_transport = transport_;
  servers_.push_back(Server::Start(ThreeTasks(text), "ps", 0, options).value());
  servers_.push_back(Server::Start(ThreeTasks(text), "worker", 0, options).value());
  Build(&b_, 0);
  SessionOptions alone{.target = worker().target()};
  alone.device_filters = {"/job:ps", "/job:worker/task:0"};  // worker 1 is not there yet
  session_ = OpenSession(alone, graph_);
  ASSERT_EQ(session_->RunTargets({"init"}), absl::OkStatus());
  ChildProcess reader("SlowReaderChild.ReadsWithoutEnd", text);
  reader.Port();
  const auto ended = [&] { return ps().worker()->parts_finished().count(); };
  const auto reads = [&] {
    const int64_t from = ended();
    return Await([&] { return ended() >= from + 10 * kReads; });
  };
  ASSERT_TRUE(reads());
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kRounds = 1, kSteps = 3;
  const bool frees_memory = false;  // their allocators keep it
#else
  constexpr int kRounds = 3, kSteps = 20;
  const bool frees_memory = true;
#endif
  for (int round = 0; round < kRounds; ++round) {
    reader.Stop();
    const size_t resident = ResidentBytes();
    for (int i = 0; i < kSteps; ++i) {
      const float value = session_->Run({"max"}).value()[0].scalar<float>();
      EXPECT_EQ(session_->RunTargets({"add"}), absl::OkStatus());
      EXPECT_EQ(session_->Run({"max"}).value()[0].scalar<float>(), value + 1);
    }
    // The ps holds what the reads under way are of, and not a copy for each update. What gRPC keeps is its own affair.
    if (has_lane() && frees_memory) {
      EXPECT_LT(ResidentBytes(), resident + 2 * (kReads + 2) * kReaderFloats * sizeof(float));
    }
    reader.Continue();
    EXPECT_TRUE(reads());
  }
}

}  // namespace
}  // namespace millrace
