#include "millrace/cluster/server.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/client/remote_session.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The TCP sockets of this process that listen.
int ListeningSockets() {
  std::set<std::string> mine;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link.starts_with("socket:[")) mine.insert(link.substr(8, link.size() - 9));
  }
  int count = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
      count += columns.size() > 9 && columns[3] == "0A" && mine.contains(columns[9]);
    }
  }
  return count;
}

TEST(Server, SaysWhereItListensUntilItIsStopped) {
  auto server =
      Server::Start(ClusterSpec::Of({{"worker", {"localhost:0", "localhost:1"}}}).value(), "worker", 0).value();
  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->target(), absl::StrCat("grpc://localhost:", server->port()));
  EXPECT_EQ(server->task().name(), "/job:worker/replica:0/task:0");
  EXPECT_EQ(*server->cluster().Address({"worker", 0}), absl::StrCat("localhost:", server->port()));
  EXPECT_EQ(*server->cluster().Address({"worker", 1}), "localhost:1");
  EXPECT_THAT(server->devices(), ElementsAre("/job:worker/replica:0/task:0/device:CPU:0"));
  Notification joined;
  std::thread joining([&] {
    server->Join();
    joined.Notify();
  });
  EXPECT_FALSE(joined.HasBeenNotified());
  server->Stop();
  joining.join();
  server->Stop();
  server->Join();
}

TEST(Server, ThatIsLocalIsAClusterOfOne) {
  auto server = Server::CreateLocalServer({.cpu_devices = 2}).value();
  EXPECT_EQ(server->task().name(), "/job:localhost/replica:0/task:0");
  EXPECT_EQ(server->devices().size(), 2u);
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:localhost/task:0/device:CPU:1";
  b.Const(Tensor::Scalar(3.f), "c");
  EXPECT_EQ(OpenSession({.target = server->target()}, graph)->Run({"c"}).value()[0].scalar<float>(), 3);
}

TEST(Server, IsRefusedWithWhatIsWrong) {
  const ClusterSpec cluster = ClusterSpec::Of({{"ps", {"localhost:0"}}, {"worker", {"localhost:0"}}}).value();
  EXPECT_THAT(Server::Start(cluster, "wroker", 0).status().message(),
              HasSubstr("no job 'wroker'; its jobs are: ps, worker"));
  EXPECT_THAT(Server::Start(cluster, "ps", 3).status().message(), HasSubstr("no task 3; its tasks are: 0"));
  EXPECT_EQ(Server::Start(cluster, "ps", 0, {.cpu_devices = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  auto first = Server::CreateLocalServer().value();
  const auto again =
      Server::Start(ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", first->port())}}}).value(), "ps", 0);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(again.status().message(), HasSubstr(absl::StrCat(first->port())));
}

TEST(Server, FreesItsPort) {
  const ClusterSpec cluster = ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", FreePorts(1)[0])}}}).value();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Server::Start(cluster, "ps", 0).status(), absl::OkStatus());
}

TEST(Servers, OfOneProcessShareAStep) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint x = b.Const(Tensor::Scalar(3.f), "x");
  b.device = "/job:worker/task:0";
  b.Op("Mul", {x, b.Const(Tensor::Scalar(5.f), "w")}, {}, "y");
  for (const SessionOptions& options :
       {SessionOptions{.target = servers[1]->target()}, OverTheNetwork(*servers[1]), OverTheNetwork(*servers[0])}) {
    auto session = OpenSession(options, graph);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(session->Run({"y"}).value()[0].scalar<float>(), 15);
  }
}

TEST(Server, EndsTheStepsThatRunWhenItStops) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Graph graph;
  GraphBuilder b(&graph);
  AddBlockedStep(&b, "/job:ps/task:0", "/job:worker/task:0");
  auto here = OpenSession({.target = servers[1]->target()}, graph);
  auto elsewhere = OpenSession(OverTheNetwork(*servers[1]), graph);
  BackgroundRun first(here.get(), "y"), second(elsewhere.get(), "y");
  ASSERT_TRUE(Await([&] { return servers[0]->worker()->ListRunning().size() == 2; }));
  // The task that the steps wait for.
  servers[0]->Stop();
  for (const Status& status : {first.End(), second.End()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
  }
}

TEST(Server, TellsItsClientsThatItStops) {
  auto server = Server::CreateLocalServer().value();
  Graph graph;
  GraphBuilder b(&graph);
  AddBlockedStep(&b, "", "");
  auto here = OpenSession({.target = server->target()}, graph);
  auto elsewhere = OpenSession(OverTheNetwork(*server), graph);
  BackgroundRun first(here.get(), "y"), second(elsewhere.get(), "y");
  ASSERT_TRUE(Await([&] { return server->worker()->ListRunning().size() == 2; }));
  server->Stop();
  for (const Status& status : {first.End(), second.End()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/job:localhost/replica:0/task:0"));
  }
  EXPECT_TRUE(server->worker()->ListRunning().empty());
}

// Counts the calls that arrive.
class CountingTransport : public net::Transport {
 public:
  int calls() const { return calls_; }
  std::shared_ptr<net::Channel> Connect(const std::string& address) override { return grpc_->Connect(address); }
  StatusOr<std::unique_ptr<net::Listener>> Listen(const std::string& address, net::Service* service) override {
    counted_ = std::make_unique<Counted>(service, &calls_);
    return grpc_->Listen(address, counted_.get());
  }

 private:
  struct Counted : net::Service {
    Counted(net::Service* service, std::atomic<int>* calls) : service(service), calls(calls) {}
    const std::vector<std::string>& methods() const override { return service->methods(); }
    void OnCall(int method, std::shared_ptr<net::IncomingCall> call) override {
      ++*calls;
      service->OnCall(method, std::move(call));
    }
    net::Service* const service;
    std::atomic<int>* const calls;
  };
  std::atomic<int> calls_{0};
  std::unique_ptr<Counted> counted_;
  std::unique_ptr<net::Transport> grpc_ = net::NewGrpcTransport();
};

TEST(Server, HearsNoCallsOfSessionsInItsProcess) {
  CountingTransport transport;
  auto server = Server::CreateLocalServer({.transport = &transport}).value();
  Graph graph;
  GraphBuilder b(&graph);
  b.Const(Tensor::Scalar(3.f), "c");
  auto session = OpenSession({.target = server->target()}, graph);
  EXPECT_EQ(session->Run({"c"}).value()[0].scalar<float>(), 3);
  EXPECT_EQ(session->MakeCallable({.fetches = {"c"}}).status(), absl::OkStatus());
  EXPECT_EQ(session->ListDeviceInfo()->size(), 1u);
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(transport.calls(), 0);
  EXPECT_EQ(OpenSession(OverTheNetwork(*server), graph)->Run({"c"}).status(), absl::OkStatus());
  EXPECT_GT(transport.calls(), 0);
}

// A variable `v` that `set` makes 7 and `read` reads, in a container.
void AddVariable(GraphBuilder* b, const std::string& container = "") {
  const Endpoint v = b->Op("VarHandleOp", {},
                           {{"dtype", DType::kFloat},
                            {"shape", PartialShape(std::vector<int64_t>{})},
                            {"shared_name", "v"},
                            {"container", container}},
                           "v");
  b->AddNode("AssignVariableOp", std::vector<Endpoint>{v, b->Const(Tensor::Scalar(7.f), "seven")}, {}, "set");
  b->Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}, "read");
}

TEST(Server, KeepsVariablesWhenSessionsEnd) {
  auto server = Server::CreateLocalServer().value();
  Graph graph;
  GraphBuilder b(&graph);
  AddVariable(&b);
  EXPECT_EQ(OpenSession(OverTheNetwork(*server), graph)->RunTargets({"set"}), absl::OkStatus());
  EXPECT_EQ(OpenSession(OverTheNetwork(*server), graph)->Run({"read"}).value()[0].scalar<float>(), 7);
  EXPECT_EQ(OpenSession({.target = server->target()}, graph)->Run({"read"}).value()[0].scalar<float>(), 7);
  SessionOptions alone = OverTheNetwork(*server);
  alone.isolate_session_state = true;
  auto isolated = OpenSession(alone, graph);
  EXPECT_EQ(isolated->Run({"read"}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(isolated->RunTargets({"set"}), absl::OkStatus());
  EXPECT_EQ(isolated->Run({"read"}).value()[0].scalar<float>(), 7);
}

TEST(Server, EmptiesOnlyTheContainersThatAResetNames) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Graph graph, other;
  GraphBuilder a(&graph), b(&other);
  a.device = b.device = "/job:ps/task:0";
  AddVariable(&a, "experiment");
  AddVariable(&b);
  auto session = OpenSession(OverTheNetwork(*servers[1]), graph);
  EXPECT_EQ(session->RunTargets({"set"}), absl::OkStatus());
  EXPECT_EQ(OpenSession(OverTheNetwork(*servers[1]), other)->RunTargets({"set"}), absl::OkStatus());
  EXPECT_EQ(ResetServer(OverTheNetwork(*servers[1]), {"experiment"}), absl::OkStatus());
  EXPECT_EQ(session->Run({"read"}).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(OpenSession(OverTheNetwork(*servers[1]), graph)->Run({"read"}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(OpenSession(OverTheNetwork(*servers[1]), other)->Run({"read"}).value()[0].scalar<float>(), 7);
}

TEST(Library, OpensNoPortWithoutAServer) {
  ASSERT_EQ(ListeningSockets(), 0);
  Graph graph;
  GraphBuilder b(&graph);
  b.Const(Tensor::Scalar(3.f), "c");
  auto session = OpenSession({}, graph);
  EXPECT_EQ(session->Run({"c"}).status(), absl::OkStatus());
  auto remote = Session::Create({.target = "grpc://localhost:1"});
  EXPECT_EQ(ListeningSockets(), 0);
  {
    auto server = Server::CreateLocalServer().value();
    EXPECT_GT(ListeningSockets(), 0);
  }
  EXPECT_EQ(ListeningSockets(), 0);
}

}  // namespace
}  // namespace millrace
