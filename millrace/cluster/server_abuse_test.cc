// What clients must not be able to do to a server: end it, keep it busy for ever, or make it keep what they left
// behind.
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/fd.h"
#include "millrace/base/file.h"
#include "millrace/base/notice.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/task_service.h"
#include "millrace/cluster/watch/status_service.h"
#include "millrace/graph/graph_def.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMb = int64_t{1} << 20;

// The memory of this process, after malloc has returned what it keeps. Always 0 under sanitizers, which keep freed
// memory.
int64_t ResidentBytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#endif
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string AddressOf(const Server& server) { return server.target().substr(7); }

// A client with its own connection that may send anything.
class RawClient {
 public:
  explicit RawClient(const Server& server) : channel_(transport_->Connect(AddressOf(server))) {}

  StatusOr<net::Bytes> Call(const std::string& method, net::Bytes request) {
    net::Answer answer;
    channel_->Call(method, std::move(request), {.timeout = absl::Minutes(5)}, answer.Done());
    answer.notification().Wait();
    return answer.result();
  }
  template <typename Response = pb::RunStepResponse>
  StatusOr<Response> Master(const std::string& method, const google::protobuf::MessageLite& request) {
    MR_ASSIGN_OR_RETURN(const net::Bytes bytes, Call("/tensorflow.MasterService/" + method, net::Serialize(request)));
    StatusOr<Response> response{absl::in_place};
    MR_RETURN_IF_ERROR(net::Parse(bytes, &*response));
    return response;
  }
  std::string Open(const pb::GraphDef& graph) {
    pb::CreateSessionRequest request;
    *request.mutable_graph_def() = graph;
    const auto response = Master<pb::CreateSessionResponse>("CreateSession", request);
    EXPECT_EQ(response.status(), absl::OkStatus());
    return response.ok() ? response->session_handle() : "";
  }
  Status Run(const std::string& session, const std::string& fetch) {
    pb::RunStepRequest request;
    request.set_session_handle(session);
    request.add_fetch(fetch);
    return Master("RunStep", request).status();
  }
  Status Close(const std::string& session) {
    pb::CloseSessionRequest request;
    request.set_session_handle(session);
    return Master("CloseSession", request).status();
  }
  // Says something and does not wait for the answer.
  void Say(const std::string& method, const google::protobuf::MessageLite& request) {
    channel_->Call(method, net::Serialize(request), {}, [](const StatusOr<net::Bytes>&) {});
  }

 private:
  const std::unique_ptr<net::Transport> transport_ = net::NewGrpcTransport();
  const std::shared_ptr<net::Channel> channel_;
};

pb::GraphDef SmallGraph() {
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint c = b.Const(Tensor::Scalar(3.f), "c");
  b.Op("Mul", {c, c}, {}, "y");
  return ExportGraphDef(graph);
}

class ServerAbuse : public ::testing::Test {
 protected:
  std::unique_ptr<Server> server_ = Server::CreateLocalServer({.session_grace = absl::Milliseconds(100)}).value();
  const pb::GraphDef graph_ = SmallGraph();

  void ExpectHealthy() {
    RawClient client(*server_);
    const std::string session = client.Open(graph_);
    EXPECT_EQ(client.Run(session, "y:0"), absl::OkStatus());
    EXPECT_EQ(client.Close(session), absl::OkStatus());
  }
};

TEST_F(ServerAbuse, AGraphThatNeedsMoreMemoryThanThereIsGetsAnError) {
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint shape = b.Scalar(int32_t{-1}), most = b.Scalar(std::numeric_limits<int32_t>::max());
  const Endpoint list = b.Op("TensorListReserve", {shape, most}, {{"element_dtype", DType::kFloat}}, "list");
  b.Op("TensorListLength", {list}, {}, "length");
  const Endpoint two = b.Op("TensorListReserve", {shape, b.Scalar(int32_t{2})}, {{"element_dtype", DType::kFloat}});
  b.Op("TensorListLength", {b.Op("TensorListResize", {two, most}, {})}, {}, "resized");
  ASSERT_TRUE(b.ok()) << b.status();
  RawClient client(*server_);
  const std::string session = client.Open(ExportGraphDef(graph));
  for (const std::string fetch : {"length:0", "resized:0"}) {
    const Status status = client.Run(session, fetch);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << fetch << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr("{{node ")) << fetch;
    EXPECT_THAT(status.message(), HasSubstr("2147483647 elements")) << fetch;
  }
  ExpectHealthy();
}

// A file that nobody ever writes to, until it is destroyed.
class SilentFifo {
 public:
  SilentFifo() { EXPECT_EQ(mkfifo(path().c_str(), 0600), 0); }
  // A writer that comes and goes ends all reads.
  ~SilentFifo() { Fd(open(path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)); }
  std::string path() const { return directory_.File("fifo"); }

 private:
  const TempDirectory directory_ = TempDirectory::Make("server_abuse_test").value();
};

TEST_F(ServerAbuse, FilesThatBlockKeepNobodyFromBeingServedAndTheServerStops) {
  const SilentFifo fifo;
  Graph graph;
  GraphBuilder b(&graph);
  b.Op("ReadFile", {b.Const(Tensor::Scalar(fifo.path()), "path")}, {}, "read");
  ASSERT_TRUE(b.ok()) << b.status();
  RawClient client(*server_);
  const std::string session = client.Open(ExportGraphDef(graph));
  pb::RunStepRequest request;
  request.set_session_handle(session);
  request.add_fetch("read:0");
  // More than there are threads of any kind.
  constexpr size_t kReads = 100;
  for (size_t i = 0; i < kReads; ++i) client.Say("/tensorflow.MasterService/RunStep", request);
  const auto status = [&] {
    const StatusOr<net::Bytes> bytes = client.Call(StatusService::kMethod, net::Bytes());
    TaskStatus status;
    EXPECT_EQ(bytes.status(), absl::OkStatus());
    EXPECT_EQ(net::Parse(*bytes, &status), absl::OkStatus());
    return status;
  };
  std::vector<std::string> reads;
  EXPECT_TRUE(net::WaitUntil([&] {
    reads.clear();
    const TaskStatus now = status();
    for (const TaskStatus::Wait& wait : now.waits()) {
      if (wait.node() == "read") reads.push_back(wait.what());
    }
    return reads.size() == kReads;
  }));
  EXPECT_EQ(reads.front(), absl::StrCat("ReadFile of '", fifo.path(), "'"));
  EXPECT_EQ(reads.back(), absl::StrCat("ReadFile of '", fifo.path(), "', in line for a thread for files"));
  ExpectHealthy();
  // A step's own limit holds.
  const std::unique_ptr<Session> impatient = OpenSession({.target = server_->target()}, graph);
  const std::string read = "read:0";
  std::vector<Tensor> results;
  EXPECT_EQ(impatient->Run({.timeout = absl::Milliseconds(50)}, {}, {&read, 1}, {}, &results, nullptr).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(server_->StopWithin(absl::Seconds(30)), absl::OkStatus());
}

TEST_F(ServerAbuse, BytesThatAreNoMessageAreRefused) {
  const TaskService service(server_->master(), server_->worker(), Clock::Real());
  RawClient client(*server_);
  EXPECT_GT(service.methods().size(), 20u);
  for (const std::string& method : service.methods()) {
    // A tag of a wire type that there is not; a length beyond the end; a number that never ends.
    for (const std::string& bytes :
         {std::string("\x0f\x0f"), std::string("\x0a\xff\xff\xff\x7f"), std::string(64, '\xff')}) {
      const Status status = client.Call(method, net::Bytes::Of(bytes)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << method << ": " << status;
    }
  }
  ExpectHealthy();
}

TEST_F(ServerAbuse, BytesAtRandomAreAnswered) {
  const TaskService service(server_->master(), server_->worker(), Clock::Real());
  RawClient client(*server_);
  std::minstd_rand random(1);
  for (const std::string& method : service.methods()) {
    for (int i = 0; i < 30; ++i) {
      std::string bytes(random() % 40, '\0');
      for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() % 256 : random() % 40);
      client.Call(method, net::Bytes::Of(bytes)).status().IgnoreError();
    }
  }
  ExpectHealthy();
}

TEST_F(ServerAbuse, SessionsThatAreNotKnownAreNamed) {
  RawClient client(*server_);
  const Status status = client.Run("deadbeef", "y:0");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'deadbeef'"));
  EXPECT_EQ(client.Close("deadbeef").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client.Call("/tensorflow.MasterService/Nonsense", {}).status().code(), absl::StatusCode::kUnimplemented);
  ExpectHealthy();
}

TEST_F(ServerAbuse, AMillionNodesAreServedAndForgotten) {
  ExpectHealthy();
  const int64_t before = ResidentBytes();
  {
    RawClient client(*server_);
    std::string session;
    {
      pb::GraphDef graph = graph_;
      for (int i = 0; i < 1'000'000; ++i) {
        pb::NodeDef* node = graph.add_node();
        node->set_name(absl::StrCat("n", i));
        node->set_op("NoOp");
        if (i > 0) node->add_input(absl::StrCat("^n", i / 2));
      }
      graph.mutable_node(graph_.node_size())->clear_input();
      graph.mutable_node(graph_.node_size() + 1)->clear_input();
      session = client.Open(graph);
    }
    EXPECT_EQ(client.Run(session, "y:0"), absl::OkStatus());
    EXPECT_EQ(server_->master()->sessions()[0]->num_nodes(), graph_.node_size() + 1'000'000);
    // Others go on meanwhile.
    ExpectHealthy();
    EXPECT_EQ(client.Close(session), absl::OkStatus());
  }
  ASSERT_TRUE(Await([&] { return server_->master()->sessions().empty(); }));
  // The answer to Close does not wait until all of the graph is freed.
  EXPECT_TRUE(Await([&] { return ResidentBytes() - before < 100 * kMb; })) << ResidentBytes() - before;
}

TEST_F(ServerAbuse, AClientThatVanishesTakesItsStepAlong) {
  Graph graph;
  GraphBuilder b(&graph);
  AddBlockedStep(&b, "", "");
  {
    RawClient client(*server_);
    pb::RunStepRequest request;
    request.set_session_handle(client.Open(ExportGraphDef(graph)));
    request.add_fetch("y:0");
    client.Say("/tensorflow.MasterService/RunStep", request);
    ASSERT_TRUE(Await([&] { return server_->worker()->ListRunning().size() == 1; }));
  }
  EXPECT_TRUE(Await([&] { return server_->worker()->ListRunning().empty(); }));
  EXPECT_TRUE(Await([&] { return server_->worker()->ListWaits().empty(); }));
  EXPECT_TRUE(
      Await([&] { return server_->master()->sessions().empty() && server_->worker()->ListSessions().empty(); }));
  ExpectHealthy();
}

TEST_F(ServerAbuse, AClientThatVanishesInAPartialRunIsForgotten) {
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  b.Op("Neg", {x}, {}, "y");
  {
    RawClient client(*server_);
    pb::PartialRunSetupRequest request;
    request.set_session_handle(client.Open(ExportGraphDef(graph)));
    request.add_feed("x:0");
    request.add_fetch("y:0");
    EXPECT_EQ(client.Master<pb::PartialRunSetupResponse>("PartialRunSetup", request).status(), absl::OkStatus());
    EXPECT_EQ(server_->worker()->ListRunning().size(), 1u);
  }
  EXPECT_TRUE(Await([&] { return server_->worker()->ListRunning().empty() && server_->master()->sessions().empty(); }));
}

TEST_F(ServerAbuse, SessionsThatAreClosedLeaveNothing) {
  int64_t before = 0;
  for (int round = 0; round < 2; ++round) {
    RawClient client(*server_);
    for (int i = 0; i < 1000; ++i) {
      const std::string session = client.Open(graph_);
      ASSERT_EQ(client.Run(session, "y:0"), absl::OkStatus());
      ASSERT_EQ(client.Close(session), absl::OkStatus());
    }
    if (round == 0) before = ResidentBytes();
  }
  EXPECT_TRUE(server_->master()->sessions().empty());
  EXPECT_TRUE(server_->worker()->ListSessions().empty());
  EXPECT_LT(ResidentBytes() - before, 20 * kMb);
}

TEST_F(ServerAbuse, SessionsThatAreDroppedLeaveNothing) {
  int64_t before = 0;
  for (int round = 0; round < 2; ++round) {
    for (int c = 0; c < 20; ++c) {
      RawClient client(*server_);
      for (int i = 0; i < 50; ++i) ASSERT_EQ(client.Run(client.Open(graph_), "y:0"), absl::OkStatus());
    }
    EXPECT_TRUE(
        Await([&] { return server_->master()->sessions().empty() && server_->worker()->ListSessions().empty(); }));
    if (round == 0) before = ResidentBytes();
  }
  EXPECT_LT(ResidentBytes() - before, 20 * kMb);
}

TEST_F(ServerAbuse, SessionsOfClientsThatAreThereStay) {
  RawClient client(*server_);
  const std::string kept = client.Open(graph_);
  { RawClient(*server_).Open(graph_); }
  // The one that was left is gone: the grace has passed for both.
  ASSERT_TRUE(Await([&] { return server_->master()->sessions().size() == 1; }));
  EXPECT_EQ(client.Run(kept, "y:0"), absl::OkStatus());
}

TEST_F(ServerAbuse, WorkerSessionsOfMastersThatDieAreForgotten) {
  {
    RawClient master(*server_);
    pb::CreateWorkerSessionRequest request;
    for (int i = 0; i < 100; ++i) {
      request.set_session_handle(absl::StrCat("s", i));
      ASSERT_EQ(master.Call("/tensorflow.WorkerService/CreateWorkerSession", net::Serialize(request)).status(),
                absl::OkStatus());
    }
    EXPECT_EQ(server_->worker()->ListSessions().size(), 100u);
  }
  EXPECT_TRUE(Await([&] { return server_->worker()->ListSessions().empty(); }));
}

TEST(ServeOut, LastsAsLongAsAClientIsThere) {
  setenv(kGraceVariable, "600", 1);
  const absl::Cleanup unset = [] { unsetenv(kGraceVariable); };
  const auto server = Server::CreateLocalServer().value();
  auto master = std::make_optional<RawClient>(*server);
  pb::CreateWorkerSessionRequest request;
  request.set_session_handle("never closed");
  ASSERT_EQ(master->Call("/tensorflow.WorkerService/CreateWorkerSession", net::Serialize(request)).status(),
            absl::OkStatus());
  Notification served;
  std::thread serving([&] {
    server->ServeOut({.grace = absl::Minutes(10)});
    served.Notify();
  });
  EXPECT_FALSE(served.WaitFor(absl::Seconds(3)));
  master.reset();  // as when its process is killed
  EXPECT_TRUE(served.WaitFor(absl::Seconds(30)));
  server->Stop();
  serving.join();
}

}  // namespace
}  // namespace millrace
