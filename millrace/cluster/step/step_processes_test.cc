// Steps over every transport with a peer in another process, which is killed or stopped.
#include <atomic>
#include <thread>

#include "absl/strings/str_split.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/base/clock.h"
#include "millrace/cluster/step/step_transport_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kPsName[] = "/job:ps/replica:0/task:0";
constexpr int64_t kPeerFloats = 5'000'000;

ClusterSpec TwoTasks(const std::string& ps_port, const std::string& worker_port) {
  return ClusterSpec::Of({{"ps", {"localhost:" + ps_port}}, {"worker", {"localhost:" + worker_port}}}).value();
}

// What the children serve is the transport and the ports of both tasks.
TEST(StepChild, ServesPs) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "for other tests";
  const std::vector<std::string> words = absl::StrSplit(ChildProcess::Argument(), ' ');
  const auto server = Server::Start(TwoTasks(words[1], words[2]), "ps", 0, {.step_transport = words[0]}).value();
  ChildProcess::SayPort(server->port());
  server->Join();
}

// A ps in a process of its own and a worker in this one.
class StepProcessTest : public StepTransportTest {
 protected:
  void StartProcesses() {
    const std::vector<int> ports = FreePorts(2);
    argument_ = absl::StrCat(transport_, " ", ports[0], " ", ports[1]);
    RestartPs();
    servers_.push_back(Server::Start(TwoTasks(absl::StrCat(ports[0]), absl::StrCat(ports[1])), "worker", 0,
                                     {.peer_timeout = absl::Seconds(1), .step_transport = transport_})
                           .value());
    AddBlockedStep(&b_, kPs, WorkerDevice(0));
    OnPs();
    Variable("w", DType::kFloat, Shape({kPeerFloats}), Filled(Shape({kPeerFloats}), 3));
    b_.AddNode("NoOp", {}, {}, "ping");
    OnWorker();
    b_.Op("Min", {Named("w/read"), b_.Ints({0})}, {}, "min");
    b_.Op("Max", {Named("w/read"), b_.Ints({0})}, {}, "max");
    ASSERT_EQ(b_.status(), absl::OkStatus());
  }
  void RestartPs() {
    ps_ = std::make_unique<ChildProcess>("StepChild.ServesPs", argument_);
    ps_->Port();
  }
  net::PeerStatus Peer() {
    for (const net::PeerStatus& peer : servers_[0]->worker()->options().transport->status().peers) {
      if (peer.outgoing) return peer;
    }
    return {};
  }
  // A session whose variable has its value, once what is to carry its steps does.
  std::unique_ptr<Session> OpenWhenCarried() {
    auto session = OpenSession({.target = servers_[0]->target()}, graph_);
    EXPECT_EQ(session->RunTargets({"w/init"}), absl::OkStatus());
    EXPECT_TRUE(Await([&] {
      EXPECT_EQ(session->RunTargets({"ping"}), absl::OkStatus());
      return Peer().kind == (has_lane() ? transport_ : "");
    })) << Peer().why_not_better;
    return session;
  }
  static void ExpectUnavailable(const Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPsName));
  }
  bool WaitsForPs() {
    for (const Wait& wait : servers_[0]->worker()->ListWaits()) {
      if (wait.kind == Wait::Kind::kTensor && absl::StrContains(wait.peer, kPsName)) return true;
    }
    return false;
  }
  // Reads until something else than the variable comes, and gives that.
  Status ReadUntilItFails(Session* session) {
    for (;;) {
      const StatusOr<std::vector<Tensor>> read = session->Run({"min", "max"});
      if (!read.ok()) return read.status();
      EXPECT_EQ((*read)[0].scalar<float>(), 3);
      EXPECT_EQ((*read)[1].scalar<float>(), 3);
      ++reads_;
    }
  }

  std::string argument_;
  std::unique_ptr<ChildProcess> ps_;
  std::atomic<int> reads_{0};
};

INSTANTIATE_TEST_SUITE_P(Over, StepProcessTest, ::testing::Values("grpc", "tcp", "shm"), TransportName);

TEST_P(StepProcessTest, APeerThatIsKilledIsNamedAndTheNextOneServes) {
  StartProcesses();
  for (int round = 0; round < 2; ++round) {
    const auto session = OpenWhenCarried();
    BackgroundRun run(session.get(), "y");
    ASSERT_TRUE(Await([&] { return WaitsForPs(); }));
    const absl::Time killed = Clock::Real()->Now();
    ps_->Kill();
    ExpectUnavailable(run.End());
    EXPECT_LT(Clock::Real()->Now() - killed, absl::Seconds(20));
    RestartPs();
  }
  const auto session = OpenWhenCarried();
  EXPECT_EQ(session->Run({"max"}).value()[0].scalar<float>(), 3);
}

TEST_P(StepProcessTest, APeerThatIsKilledWhileItsVariableIsReadGivesAllOfItOrAnError) {
  StartProcesses();
  for (int round = 0; round < 3; ++round) {
    const auto session = OpenWhenCarried();
    reads_ = 0;
    Status status;
    std::thread run([&] { status = ReadUntilItFails(session.get()); });
    EXPECT_TRUE(Await([&] { return reads_ > 2; }));
    // Somewhere in a read, each time elsewhere.
    Notification().WaitFor(absl::Microseconds(3100 * round));
    ps_->Kill();
    run.join();
    ExpectUnavailable(status);
    RestartPs();
  }
}

TEST_P(StepProcessTest, APeerThatIsStoppedIsNamedInTimeAndUsedAgainLater) {
  StartProcesses();
  auto session = OpenWhenCarried();
  for (const bool while_reading : {false, true}) {
    Status status;
    reads_ = 0;
    std::thread run([&] { status = while_reading ? ReadUntilItFails(session.get()) : session->Run({"y"}).status(); });
    EXPECT_TRUE(Await([&] { return while_reading ? reads_ > 2 : WaitsForPs(); }));
    const absl::Time stopped = Clock::Real()->Now();
    ps_->Stop();
    run.join();
    ExpectUnavailable(status);
    EXPECT_LT(Clock::Real()->Now() - stopped, absl::Seconds(20));
    ps_->Continue();
    session = OpenWhenCarried();
    EXPECT_EQ(session->Run({"max"}).value()[0].scalar<float>(), 3);
  }
}

}  // namespace
}  // namespace millrace
