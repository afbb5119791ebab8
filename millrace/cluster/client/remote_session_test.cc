#include "millrace/cluster/client/remote_session.h"

#include <map>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/cluster/client/session_config.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/sim/manual_timers_testing.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/proto/master.pb.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A channel whose calls a test answers.
class ScriptedCall : public net::OutgoingCall {
 public:
  explicit ScriptedCall(net::Channel::Done done) : done_(std::move(done)) {}
  void Cancel() override { Answer(absl::CancelledError("cancelled")); }
  void Answer(StatusOr<net::Bytes> answer) {
    net::Channel::Done done;
    {
      MutexLock lock(&mu_);
      done = std::exchange(done_, nullptr);
    }
    if (done) done(std::move(answer));
  }

 private:
  Mutex mu_;
  net::Channel::Done done_ ABSL_GUARDED_BY(mu_);
};

class ScriptedMaster : public net::Transport {
 public:
  struct Seen {
    std::string method;
    net::Bytes request;
    net::CallOptions options;
  };
  using Handler = std::function<void(const Seen& seen, RefPtr<ScriptedCall> call)>;

  // What answers the method; without one a call waits for ever.
  void On(const std::string& method, Handler handler) { handlers_[method] = std::move(handler); }
  template <typename Response>
  void Answer(const std::string& method, const Response& response) {
    On(method, [response](const Seen&, RefPtr<ScriptedCall> call) { call->Answer(net::Serialize(response)); });
  }
  void AnswerBytes(const std::string& method, StatusOr<net::Bytes> bytes) {
    On(method, [bytes](const Seen&, RefPtr<ScriptedCall> call) { call->Answer(bytes); });
  }
  template <typename Request>
  Request Last(const std::string& method) {
    MutexLock lock(&mu_);
    Request request;
    for (const Seen& seen : seen_) {
      if (seen.method != method) continue;
      EXPECT_TRUE(net::Parse(seen.request, &request).ok());
    }
    return request;
  }
  std::vector<std::string> Methods() {
    MutexLock lock(&mu_);
    std::vector<std::string> methods;
    for (const Seen& seen : seen_) methods.push_back(seen.method);
    return methods;
  }

  std::shared_ptr<net::Channel> Connect(const std::string& address) override {
    return std::make_shared<ScriptedChannel>(address, this);
  }
  StatusOr<std::unique_ptr<net::Listener>> Listen(const std::string&, net::Service*) override {
    return Unimplemented("");
  }

 private:
  class ScriptedChannel : public net::Channel {
   public:
    ScriptedChannel(const std::string& address, ScriptedMaster* master) : Channel(address), master_(master) {}
    RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                   Done done) override {
      Seen seen = {method.substr(method.rfind('/') + 1), std::move(request), options};
      auto call = MakeRef<ScriptedCall>(std::move(done));
      {
        MutexLock lock(&master_->mu_);
        master_->seen_.push_back(seen);
      }
      if (auto it = master_->handlers_.find(seen.method); it != master_->handlers_.end()) it->second(seen, call);
      return call;
    }

   private:
    ScriptedMaster* const master_;
  };

  std::map<std::string, Handler> handlers_;
  Mutex mu_;
  std::vector<Seen> seen_ ABSL_GUARDED_BY(mu_);
};

class RemoteSessionTest : public ::testing::Test {
 protected:
  RemoteSessionTest() {
    pb::CreateSessionResponse created;
    created.set_session_handle("h");
    created.set_graph_version(3);
    master_.Answer("CreateSession", created);
    pb::ExtendSessionResponse extended;
    extended.set_new_graph_version(4);
    master_.Answer("ExtendSession", extended);
    master_.Answer("CloseSession", pb::CloseSessionResponse());
    master_.Answer("ReleaseCallable", pb::ReleaseCallableResponse());
  }
  std::unique_ptr<RemoteSession> Open(SessionOptions options = {}) {
    options.target = "grpc://host:1";
    return RemoteSession::Create(options, {.transport = &master_, .timers = &timers_}).value();
  }
  // With a graph at the server.
  std::unique_ptr<RemoteSession> OpenWithGraph(SessionOptions options = {}) {
    auto session = Open(options);
    GraphBuilder b(&graph_);
    b.Op("NoOp", {}, {}, "init");
    EXPECT_EQ(session->Extend(graph_), absl::OkStatus());
    return session;
  }

  ScriptedMaster master_;
  ManualTimers timers_;
  Graph graph_;
};

TEST_F(RemoteSessionTest, SaysNothingBeforeThereIsAGraph) {
  auto session = Open();
  EXPECT_EQ(session->Extend(pb::GraphDef()), absl::OkStatus());
  EXPECT_EQ(session->Extend(graph_), absl::OkStatus());
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_THAT(master_.Methods(), ElementsAre());
}

TEST_F(RemoteSessionTest, SendsEachNodeOnceAndEchoesVersions) {
  auto session = OpenWithGraph({.isolate_session_state = true});
  const auto created = master_.Last<pb::CreateSessionRequest>("CreateSession");
  EXPECT_EQ(created.target(), "grpc://host:1");
  EXPECT_EQ(created.graph_def().node_size(), 1);
  EXPECT_TRUE(created.config().isolate_session_state());

  EXPECT_EQ(session->Extend(graph_), absl::OkStatus());  // nothing new
  GraphBuilder b(&graph_);
  b.Op("NoOp", {}, {}, "more");
  EXPECT_EQ(session->Extend(graph_), absl::OkStatus());
  auto extended = master_.Last<pb::ExtendSessionRequest>("ExtendSession");
  EXPECT_EQ(extended.session_handle(), "h");
  EXPECT_EQ(extended.current_graph_version(), 3);
  ASSERT_EQ(extended.graph_def().node_size(), 1);
  EXPECT_EQ(extended.graph_def().node(0).name(), "more");

  // What is refused is not known to the server, and goes again.
  b.Op("NoOp", {}, {}, "last");
  master_.AnswerBytes("ExtendSession", Aborted("stale"));
  EXPECT_EQ(session->Extend(graph_), Aborted("stale"));
  master_.Answer("ExtendSession", pb::ExtendSessionResponse());
  EXPECT_EQ(session->Extend(graph_), absl::OkStatus());
  extended = master_.Last<pb::ExtendSessionRequest>("ExtendSession");
  EXPECT_EQ(extended.current_graph_version(), 4);
  EXPECT_EQ(extended.graph_def().node(0).name(), "last");
  EXPECT_THAT(master_.Methods(), ElementsAre("CreateSession", "ExtendSession", "ExtendSession", "ExtendSession"));
}

TEST_F(RemoteSessionTest, RunsByNameInTheOrderOfTheFetches) {
  auto session = OpenWithGraph({.operation_timeout = absl::Seconds(100)});
  RunStepAnswer answer;
  answer.tensors = {{"a:0", Tensor::Scalar(1.f)}, {"b:1", Tensor::Scalar(2.f)}};
  answer.metadata.mutable_step_stats()->add_dev_stats();
  master_.AnswerBytes("RunStep", EncodeRunStepAnswer(answer));
  std::vector<Tensor> results;
  RunMetadata metadata;
  ASSERT_EQ(session->Run({.timeout = absl::Microseconds(1500), .trace = true}, {{"x", Tensor::Scalar(3.f)}},
                         {"b:1", "a", "b:1"}, {"init"}, &results, &metadata),
            absl::OkStatus());
  ASSERT_EQ(results.size(), 3);
  EXPECT_EQ(results[0].scalar<float>(), 2);
  EXPECT_EQ(results[1].scalar<float>(), 1);
  EXPECT_EQ(results[2].scalar<float>(), 2);
  EXPECT_EQ(metadata.step_stats().dev_stats_size(), 1);
  const auto sent = master_.Last<pb::RunStepRequest>("RunStep");
  EXPECT_EQ(sent.session_handle(), "h");
  EXPECT_EQ(sent.feed(0).name(), "x:0");
  EXPECT_THAT(sent.fetch(), ElementsAre("b:1", "a:0", "b:1"));
  EXPECT_THAT(sent.target(), ElementsAre("init"));
  EXPECT_EQ(sent.options().timeout_in_ms(), 2);
  EXPECT_EQ(sent.options().trace_level(), pb::RunOptions::FULL_TRACE);
  EXPECT_TRUE(sent.store_errors_in_response_body());
  EXPECT_NE(sent.request_id(), 0);

  EXPECT_THAT(session->Run({"c"}).status().message(), HasSubstr("host:1 sent no value for c:0"));
  EXPECT_EQ(master_.Last<pb::RunStepRequest>("RunStep").options().timeout_in_ms(), 100000);
}

TEST_F(RemoteSessionTest, PassesOnTheErrorsOfTheServer) {
  auto session = OpenWithGraph();
  RunStepAnswer answer;
  answer.status = FailedPrecondition("{{node w}} is not initialised");
  master_.AnswerBytes("RunStep", EncodeRunStepAnswer(answer));
  EXPECT_EQ(session->Run({"w"}).status(), answer.status);
  master_.AnswerBytes("RunStep", Unavailable("host:1 refuses"));
  EXPECT_EQ(session->Run({"w"}).status(), Unavailable("host:1 refuses"));
  master_.AnswerBytes("RunStep", net::Bytes::Of("\x0a\x7f"));
  EXPECT_EQ(session->Run({"w"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RemoteSessionTest, RunsCallablesByPosition) {
  auto session = OpenWithGraph();
  pb::MakeCallableResponse made;
  made.set_handle(7);
  master_.Answer("MakeCallable", made);
  {
    auto callable = session->MakeCallable({.feeds = {"x"}, .fetches = {"y"}}).value();
    EXPECT_THAT(master_.Last<pb::MakeCallableRequest>("MakeCallable").options().feed(), ElementsAre("x:0"));
    master_.AnswerBytes("RunCallable", EncodeRunCallableAnswer({.fetches = {Tensor::Scalar(5.f)}, .metadata = {}}));
    std::vector<Tensor> results;
    ASSERT_EQ(callable->Run({Tensor::Scalar(1.f)}, &results), absl::OkStatus());
    EXPECT_EQ(results[0].scalar<float>(), 5);
    EXPECT_EQ(master_.Last<pb::RunCallableRequest>("RunCallable").handle(), 7);
    EXPECT_EQ(callable->Run({}, &results).code(), absl::StatusCode::kInvalidArgument);

    RunStepAnswer answer;
    answer.tensors = {{"y:0", Tensor::Scalar(6.f)}};
    master_.AnswerBytes("RunStep", EncodeRunStepAnswer(answer));
    ASSERT_EQ(callable->Run({Tensor::Scalar(1.f)}, &results, {.trace = true}), absl::OkStatus());
    EXPECT_EQ(results[0].scalar<float>(), 6);
  }
  EXPECT_EQ(master_.Last<pb::ReleaseCallableRequest>("ReleaseCallable").handle(), 7);
}

TEST_F(RemoteSessionTest, RunsPartOfAStep) {
  auto session = OpenWithGraph();
  pb::PartialRunSetupResponse set_up;
  set_up.set_partial_run_handle("12");
  master_.Answer("PartialRunSetup", set_up);
  const std::string handle = session->PartialRunSetup({"x"}, {"y"}, {"init"}).value();
  EXPECT_EQ(handle, "12");
  EXPECT_THAT(master_.Last<pb::PartialRunSetupRequest>("PartialRunSetup").fetch(), ElementsAre("y:0"));
  RunStepAnswer answer;
  answer.tensors = {{"y:0", Tensor::Scalar(6.f)}};
  master_.AnswerBytes("RunStep", EncodeRunStepAnswer(answer));
  std::vector<Tensor> results;
  EXPECT_EQ(session->PartialRun(handle, {{"x", Tensor::Scalar(1.f)}}, {"y"}, &results), absl::OkStatus());
  EXPECT_EQ(master_.Last<pb::RunStepRequest>("RunStep").partial_run_handle(), "12");
}

TEST_F(RemoteSessionTest, ListsTheDevicesOfAllTasks) {
  auto session = Open();
  pb::ListDevicesResponse devices;
  devices.add_local_device()->set_name("/job:worker/replica:0/task:0/device:CPU:0");
  auto* remote = devices.add_remote_device();
  remote->set_name("/job:ps/replica:0/task:0/device:CPU:0");
  remote->set_device_type("CPU");
  remote->set_incarnation(77);
  master_.Answer("ListDevices", devices);
  const std::vector<DeviceInfo> infos = session->ListDeviceInfo().value();
  ASSERT_EQ(infos.size(), 2);
  EXPECT_EQ(infos[1].name, "/job:ps/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(infos[1].type, "CPU");
  EXPECT_EQ(infos[1].incarnation, 77u);
  EXPECT_THAT(master_.Methods(), ElementsAre("CreateSession", "ListDevices"));
}

TEST_F(RemoteSessionTest, IsCancelledFromOutsideAndByItsEnd) {
  auto session = OpenWithGraph();
  CancellationManager cancellation;
  Notification running;
  master_.On("RunStep", [&](const ScriptedMaster::Seen&, RefPtr<ScriptedCall>) { running.Notify(); });
  Status status;
  std::thread run([&] {
    std::vector<Tensor> results;
    status = session->Run({.cancellation = &cancellation}, {}, {"y"}, {}, &results, nullptr);
  });
  running.Wait();
  cancellation.StartCancel(Cancelled("the user went home"));
  run.join();
  EXPECT_EQ(status, Cancelled("the user went home"));

  Notification running_again;
  master_.On("RunStep", [&](const ScriptedMaster::Seen&, RefPtr<ScriptedCall>) { running_again.Notify(); });
  std::thread again([&] { status = session->Run({"y"}).status(); });
  running_again.Wait();
  EXPECT_EQ(session->Close(), absl::OkStatus());
  again.join();
  EXPECT_EQ(status, Cancelled("the step was cancelled: the session was closed while it ran"));
  EXPECT_EQ(master_.Last<pb::CloseSessionRequest>("CloseSession").session_handle(), "h");
  EXPECT_EQ(session->Run({"y"}).status(), Cancelled("the session is closed"));
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST_F(RemoteSessionTest, FailsWhenTheServerIsSilent) {
  auto session = OpenWithGraph();
  Notification running;
  master_.On("RunStep", [&](const ScriptedMaster::Seen&, RefPtr<ScriptedCall>) { running.Notify(); });
  Status status;
  std::thread run([&] { status = session->Run({"y"}).status(); });
  running.Wait();
  // While it answers that it is there, a step may take hours.
  master_.Answer("GetStatus", pb::CloseSessionResponse());
  timers_.Advance(absl::Hours(2));
  EXPECT_GT(std::ranges::count(master_.Methods(), "GetStatus"), 7000);
  master_.On("GetStatus", [](const ScriptedMaster::Seen&, RefPtr<ScriptedCall>) {});
  timers_.Advance(absl::Seconds(4));
  EXPECT_EQ(std::ranges::count(master_.Methods(), "CloseSession"), 0);
  timers_.Advance(absl::Seconds(2));
  run.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("host:1 has not answered for 5 s"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("RunStep"));

  // Without a call that waits, nobody asks.
  const size_t asked = master_.Methods().size();
  timers_.Advance(absl::Hours(1));
  EXPECT_EQ(master_.Methods().size(), asked);
}

TEST_F(RemoteSessionTest, ResetNamesContainersAndTasks) {
  master_.Answer("Reset", pb::ResetResponse());
  EXPECT_EQ(RemoteSession::Reset({.target = "grpc://host:1", .device_filters = {"/job:ps"}}, {"experiment"},
                                 {.transport = &master_}),
            absl::OkStatus());
  const auto sent = master_.Last<pb::ResetRequest>("Reset");
  EXPECT_THAT(sent.container(), ElementsAre("experiment"));
  EXPECT_THAT(sent.device_filters(), ElementsAre("/job:ps"));
}

TEST(RemoteTargets, AreUnderstoodOrNamed) {
  EXPECT_THAT(Session::Create({.target = "grpc://nowhere"}).status().message(),
              HasSubstr("'grpc://nowhere' is not of the form"));
  EXPECT_THAT(Session::Create({.target = "http://a:1"}).status().message(), HasSubstr("http://a:1"));
  EXPECT_TRUE(Session::Create({.target = "grpc://localhost:1"}).ok());
  EXPECT_THAT(
      std::string(
          Session::Create({.target = "grpc://localhost:1", .tls = {.certificate = "c.pem"}}).status().message()),
      StartsWith("TLS needs"));
}

TEST(DirectSessions, ListTheDevicesOfTheirProcess) {
  const std::vector<DeviceInfo> devices =
      Session::Create({.cpu_devices = 2, .gpu_devices = 0}).value()->ListDeviceInfo().value();
  ASSERT_EQ(devices.size(), 2);
  EXPECT_EQ(devices[1].name, "/job:localhost/replica:0/task:0/device:CPU:1");
  EXPECT_EQ(devices[1].type, "CPU");
  EXPECT_NE(devices[1].incarnation, 0u);
}

TEST(LocalServers, TakeSessionsOfTheirProcess) {
  int sessions = 0;
  std::vector<std::string> reset;
  RegisterLocalServer("grpc://localhost:7",
                      {.create_session =
                           [&](const SessionOptions&) {
                             ++sessions;
                             return Session::Create({});
                           },
                       .reset =
                           [&](const std::vector<std::string>& containers, const std::vector<std::string>&) {
                             reset = containers;
                             return absl::OkStatus();
                           }});
  EXPECT_TRUE(Session::Create({.target = "grpc://localhost:7"}).ok());
  EXPECT_EQ(sessions, 1);
  EXPECT_EQ(ResetServer({.target = "grpc://localhost:7"}, {"c"}), absl::OkStatus());
  EXPECT_THAT(reset, ElementsAre("c"));
  UnregisterLocalServer("grpc://localhost:7");
  EXPECT_TRUE(Session::Create({.target = "grpc://localhost:7"}).ok());
  EXPECT_EQ(sessions, 1);
}

TEST(SessionConfig, SaysWhatTheOptionsSay) {
  SessionOptions options = {
      .intra_op_threads = 2, .passes = PassOptions::None(), .operation_timeout = absl::Seconds(2)};
  options.allow_soft_placement = true;
  options.device_filters = {"/job:ps"};
  options.cluster.add_job()->set_name("ps");
  options.config.mutable_experimental()->set_share_session_state_in_clusterspec_propagation(true);
  const pb::ConfigProto config = ConfigOf(options);
  EXPECT_EQ(config.intra_op_parallelism_threads(), 2);
  EXPECT_EQ(config.graph_options().optimizer_options().opt_level(), pb::OptimizerOptions::L0);
  EXPECT_EQ(config.operation_timeout_in_ms(), 2000);
  EXPECT_TRUE(config.allow_soft_placement());
  EXPECT_THAT(config.device_filters(), ElementsAre("/job:ps"));
  EXPECT_EQ(config.cluster_def().job(0).name(), "ps");
  EXPECT_TRUE(config.experimental().share_session_state_in_clusterspec_propagation());
  EXPECT_EQ(ConfigOf({}).ByteSizeLong(), 0);
}

}  // namespace
}  // namespace millrace
