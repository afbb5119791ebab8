#include "millrace/cluster/watch/cluster_status.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport_testing.h"
#include "millrace/proto/worker.pb.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

std::string AddressOf(const Server& server) { return server.target().substr(7); }

TEST(ClusterStatus, ShowsABlockedStepOnBothItsTasks) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Graph graph;
  GraphBuilder b(&graph);
  AddBlockedStep(&b, "/job:ps/task:0", "/job:worker/task:0");
  auto session = OpenSession(OverTheNetwork(*servers[1]), graph);
  BackgroundRun run(session.get(), "y");
  ASSERT_TRUE(
      Await([&] { return !servers[0]->worker()->ListWaits().empty() && !servers[1]->worker()->ListWaits().empty(); }));
  auto transport = net::NewGrpcTransport();
  const std::vector<TaskView> tasks = AskCluster(transport.get(), AddressOf(*servers[1]), absl::Seconds(10));
  ASSERT_EQ(tasks.size(), 2u);
  const TaskStatus& worker = tasks[0].status;
  const TaskStatus& ps = tasks[1].status;
  EXPECT_EQ(tasks[0].task, kWorker);
  EXPECT_EQ(tasks[0].address, AddressOf(*servers[1]));
  EXPECT_EQ(tasks[1].task, kPs);
  EXPECT_EQ(tasks[1].answer, absl::OkStatus());
  EXPECT_EQ(ps.devices(0).name(), absl::StrCat(kPs, "/device:CPU:0"));
  EXPECT_EQ(ps.devices(0).incarnation(), servers[0]->worker()->task().devices()[0]->incarnation());
  EXPECT_GT(ps.started_micros(), 0);
  EXPECT_GE(ps.now_micros(), ps.started_micros());

  ASSERT_EQ(worker.sessions_size(), 1);
  EXPECT_EQ(worker.sessions(0).nodes(), 3);
  EXPECT_EQ(worker.sessions(0).master(), kWorker);
  EXPECT_EQ(worker.sessions(0).running_steps(), 1);
  EXPECT_THAT(worker.sessions(0).client(), HasSubstr("ip"));
  ASSERT_EQ(ps.sessions_size(), 1);
  EXPECT_EQ(ps.sessions(0).handle(), worker.sessions(0).handle());
  EXPECT_EQ(ps.sessions(0).master(), kWorker);

  ASSERT_EQ(worker.steps_size(), 1);
  EXPECT_TRUE(worker.steps(0).driven_here());
  EXPECT_THAT(worker.steps(0).waits_for(), ElementsAre(kWorker, kPs));
  ASSERT_EQ(ps.steps_size(), 1);
  EXPECT_EQ(ps.steps(0).id(), worker.steps(0).id());
  EXPECT_FALSE(ps.steps(0).driven_here());
  EXPECT_EQ(ps.steps(0).session(), worker.sessions(0).handle());

  ASSERT_EQ(ps.waits_size(), 1);
  EXPECT_EQ(ps.waits(0).node(), "take");
  EXPECT_THAT(ps.waits(0).what(), HasSubstr("FIFOQueue 'numbers'"));
  EXPECT_EQ(ps.waits(0).step_id(), ps.steps(0).id());
  EXPECT_GE(ps.waits(0).since_micros(), ps.steps(0).since_micros());
  ASSERT_EQ(worker.waits_size(), 1);
  EXPECT_THAT(worker.waits(0).node(), HasSubstr("take"));
  EXPECT_THAT(worker.waits(0).what(), HasSubstr(kPs));
  EXPECT_EQ(worker.waits(0).step_id(), ps.steps(0).id());

  session->Close().IgnoreError();
  run.End().IgnoreError();
  // The part at the ps, which is cancelled, may end after the session is gone.
  std::string left;
  const auto nothing_left = [&] {
    left.clear();
    for (const TaskView& task : AskCluster(transport.get(), AddressOf(*servers[0]), absl::Seconds(10))) {
      if (task.status.sessions_size() + task.status.steps_size() + task.status.waits_size() > 0)
        left += task.status.ShortDebugString();
    }
    return left.empty();
  };
  EXPECT_TRUE(Await(nothing_left)) << left;
}

TEST(ClusterStatus, ShowsHowManyRunsATaskRemembers) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:ps/task:0";
  const Endpoint handle =
      b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}, {"shared_name", "w"}});
  b.AddNode("AssignVariableOp", {handle, b.Scalar(0.f)}, {}, "init");
  b.AddNode("AssignAddVariableOp", {handle, b.Scalar(1.f)}, {}, "add");
  ASSERT_TRUE(b.ok());
  auto session = OpenSession(OverTheNetwork(*servers[1]), graph);
  auto transport = net::NewGrpcTransport();
  const auto records = [&] {
    const std::vector<TaskView> tasks = AskCluster(transport.get(), AddressOf(*servers[1]), absl::Seconds(10));
    return tasks.size() < 2 ? -1 : tasks[1].status.run_records();
  };
  ASSERT_EQ(session->RunTargets({"init"}), absl::OkStatus());
  EXPECT_EQ(records(), 0);
  RunOptions options{.identity = RunIdentity::OfNewClient()};
  std::vector<Tensor> none;
  ASSERT_EQ(session->Run(options, {}, {}, std::vector<std::string>{"add"}, &none, nullptr), absl::OkStatus());
  EXPECT_EQ(records(), 1);
  EXPECT_GT(servers[0]->worker()->task().resources()->runs().bytes(), 0);
}

// One that has carried something.
class CountingTransport : public net::Transport {
 public:
  std::shared_ptr<net::Channel> Connect(const std::string& address) override { return grpc_->Connect(address); }
  StatusOr<std::unique_ptr<net::Listener>> Listen(const std::string& address, net::Service* service) override {
    return grpc_->Listen(address, service);
  }
  net::TransportStatus status() override {
    return {.peers = {{.peer = "unix:4711", .kind = "shm", .why_not_better = "", .bytes_sent = 7},
                      {.peer = "b:2222",
                       .outgoing = true,
                       .kind = "tcp",
                       .why_not_better = "another host",
                       .bytes_sent = 1,
                       .bytes_received = 2,
                       .calls = 3}},
            .refused_connections = 4};
  }

 private:
  const std::unique_ptr<net::Transport> grpc_ = net::NewGrpcTransport();
};

TEST(ClusterStatus, TellsWhatItsProcessAndItsTransportDid) {
  CountingTransport counting;
  const auto server = Server::CreateLocalServer({.transport = &counting}).value();
  auto transport = net::NewGrpcTransport();
  const std::vector<TaskView> tasks = AskCluster(transport.get(), AddressOf(*server), absl::Seconds(10));
  ASSERT_EQ(tasks.size(), 1u);
  const TaskStatus& status = tasks[0].status;
  EXPECT_GT(status.usage().user_seconds() + status.usage().system_seconds(), 0);
  EXPECT_GT(status.usage().cores(), 0);
  EXPECT_EQ(status.refused_connections(), 4);
  ASSERT_EQ(status.peers_size(), 2);
  // Those that it calls first.
  EXPECT_EQ(status.peers(0).ShortDebugString(),
            "peer: \"b:2222\" outgoing: true lane: \"tcp\" why_not_better: \"another host\" bytes_sent: 1 "
            "bytes_received: 2 calls: 3");
  EXPECT_EQ(status.peers(1).ShortDebugString(), "peer: \"unix:4711\" lane: \"shm\" bytes_sent: 7");
}

TEST(ClusterStatus, NamesTheTasksThatDoNotAnswer) {
  const std::vector<int> ports = FreePorts(2);
  // One refuses, one accepts and stays silent.
  auto transport = net::NewGrpcTransport();
  class Silent : public net::Service {
   public:
    const std::vector<std::string>& methods() const override { return methods_; }
    void OnCall(int, std::shared_ptr<net::IncomingCall> call) override {
      MutexLock lock(&mu_);
      calls_.push_back(std::move(call));
    }
    // What is dropped is answered: not under the lock.
    void Drop() {
      std::vector<std::shared_ptr<net::IncomingCall>> calls;
      MutexLock lock(&mu_);
      calls.swap(calls_);
    }

   private:
    const std::vector<std::string> methods_ = {"/millrace.StatusService/GetStatus"};
    Mutex mu_;
    std::vector<std::shared_ptr<net::IncomingCall>> calls_ ABSL_GUARDED_BY(mu_);
  } hanging;
  auto listener = transport->Listen(absl::StrCat("localhost:", ports[1]), &hanging).value();
  const ClusterSpec cluster =
      ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ports[0]), absl::StrCat("localhost:", ports[1])}},
                       {"worker", {"localhost:0"}}})
          .value();
  auto server = Server::Start(cluster, "worker", 0).value();
  const std::vector<TaskView> tasks = AskCluster(transport.get(), AddressOf(*server), absl::Seconds(2));
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[0].answer, absl::OkStatus());
  EXPECT_EQ(tasks[1].task, kPs);
  EXPECT_EQ(tasks[1].answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(tasks[2].task, "/job:ps/replica:0/task:1");
  EXPECT_EQ(tasks[2].answer.code(), absl::StatusCode::kDeadlineExceeded);
  hanging.Drop();
  const std::vector<TaskView> nobody =
      AskCluster(transport.get(), absl::StrCat("localhost:", ports[0]), absl::Seconds(5));
  ASSERT_EQ(nobody.size(), 1u);
  EXPECT_EQ(nobody[0].answer.code(), absl::StatusCode::kUnavailable);
}

TEST(ClusterStatus, ShowsTheDevicesOfATaskThatHasNoStatusService) {
  class OtherService : public net::Service {
   public:
    const std::vector<std::string>& methods() const override { return methods_; }
    void OnCall(int, std::shared_ptr<net::IncomingCall> call) override {
      pb::GetStatusResponse response;
      pb::DeviceAttributes* device = response.add_device_attributes();
      device->set_name("/job:ps/replica:0/task:0/device:CPU:0");
      device->set_device_type("CPU");
      device->set_incarnation(77);
      call->Reply(net::Serialize(response));
    }

   private:
    const std::vector<std::string> methods_ = {"/tensorflow.WorkerService/GetStatus"};
  } other;
  auto transport = net::NewGrpcTransport();
  auto listener = transport->Listen("localhost:0", &other).value();
  const std::string address = absl::StrCat("localhost:", listener->port());
  const std::vector<TaskView> tasks = AskCluster(transport.get(), address, absl::Seconds(10));
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].task, kPs);
  EXPECT_TRUE(tasks[0].is_tensorflow);
  EXPECT_EQ(tasks[0].status.devices(0).incarnation(), 77u);
}

}  // namespace
}  // namespace millrace
