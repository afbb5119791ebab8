// Every RPC of a task, by several clients at once: out of order, cancelled, and with each other's handles.
//
// MILLRACE_SEED=N replays what the clients of one seed do (not how their calls interleave); MILLRACE_STORM_SEEDS=N runs
// that many seeds. Sanitizers and the checks at the end find what went wrong.
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/watch/status_service.h"
#include "millrace/cluster/worker/remote_worker.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/graph/graph_def.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr int kClients = 4;
constexpr int kCallsOfClient = 300;
constexpr int kCallsInFlight = 12;

int64_t Number(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  int64_t number = otherwise;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &number)) << variable;
  return number;
}

// What answers have named so far, for all clients.
class Names {
 public:
  void Add(const std::string& name) {
    MutexLock lock(&mu_);
    if (names_.size() < kMost) {
      names_.push_back(name);
    } else {
      names_[next_++ % kMost] = name;
    }
  }
  // "" if there is none.
  std::string Any(uint64_t choice) const {
    MutexLock lock(&mu_);
    return names_.empty() ? "" : names_[choice % names_.size()];
  }

 private:
  static constexpr size_t kMost = 12;
  mutable Mutex mu_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

struct KnownNames {
  Names sessions, graphs;
};

// A graph over both tasks: state, a queue that is mostly empty, and a value that is fed.
pb::GraphDef StormGraph() {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/job:worker/task:0";
  const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  const Endpoint y = b.Op("Neg", {x}, {}, "y");
  b.device = "/job:ps/task:0";
  b.Op("Mul", {y, y}, {}, "z");
  const std::vector<DType> types = {DType::kFloat};
  const Endpoint queue = b.Op("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", 2}}, "queue");
  b.Op("QueueEnqueueV2", {queue, y}, {{"Tcomponents", types}}, "put");
  const Endpoint element = b.Op("QueueDequeueV2", {queue}, {{"component_types", types}}, "take");
  b.device = "/job:worker/task:0";
  b.Op("Neg", {element}, {}, "taken");
  return ExportGraphDef(graph);
}

class StormClient {
 public:
  StormClient(uint64_t seed, const std::vector<std::unique_ptr<Server>>& servers, KnownNames* names)
      : random_(seed), servers_(servers), names_(names) {
    for (const auto& server : servers_) channels_.push_back(transport_->Connect(server->target().substr(7)));
  }

  void Work() {
    for (int i = 0; i < kCallsOfClient; ++i) {
      Act();
      // Some are given up, at any moment.
      if (Chance(4) && !calls_.empty()) calls_[random_() % calls_.size()]->Cancel();
      if (calls_.size() >= kCallsInFlight) calls_.erase(calls_.begin());
      MutexLock lock(&mu_);
      while (in_flight_ >= kCallsInFlight) ended_.Wait(&mu_);
    }
    MutexLock lock(&mu_);
    while (in_flight_ > 0) ended_.Wait(&mu_);
  }

 private:
  using Then = std::function<void(const net::Bytes&)>;
  bool Chance(int of) { return random_() % of == 0; }
  std::string Session() { return Chance(20) ? "nobody" : names_->sessions.Any(random_()); }
  std::string SmallNumber() { return absl::StrCat(random_() % 4); }
  std::string Fetch() {
    static const char* const kFetches[] = {"y:0", "z:0", "taken:0", "x:0", "missing:0", "y:7"};
    return kFetches[random_() % (Chance(4) ? 6 : 3)];
  }
  int64_t StepId() {
    const auto running = servers_[random_() % servers_.size()]->worker()->ListRunning();
    return running.empty() || Chance(5) ? static_cast<int64_t>(random_() % 8)
                                        : running[random_() % running.size()].step_id;
  }
  static void SetX(pb::NamedTensorProto* feed) {
    feed->set_name("x:0");
    TensorToProto(Tensor::Scalar(2.f), feed->mutable_tensor());
  }

  void Say(const std::string& method, const google::protobuf::MessageLite& request, Then then = nullptr) {
    {
      MutexLock lock(&mu_);
      ++in_flight_;
    }
    const auto timeout = absl::Milliseconds(Chance(8) ? 1 : 50 + random_() % 300);
    auto call = channels_[random_() % channels_.size()]->Call(
        method, net::Serialize(request), {.timeout = timeout},
        [this, then = std::move(then)](const StatusOr<net::Bytes>& answer) {
          if (answer.ok() && then != nullptr) then(*answer);
          MutexLock lock(&mu_);
          --in_flight_;
          ended_.SignalAll();
        });
    if (call) calls_.push_back(std::move(call));
  }
  void Master(const std::string& method, const google::protobuf::MessageLite& request, Then then = nullptr) {
    Say("/tensorflow.MasterService/" + method, request, std::move(then));
  }
  void Worker(const std::string& method, const google::protobuf::MessageLite& request, Then then = nullptr) {
    Say("/tensorflow.WorkerService/" + method, request, std::move(then));
  }

  void Act() {
    const uint64_t choice = random_() % 100;
    if (choice < 10) return CreateSession();
    if (choice < 35) return RunStep();
    if (choice < 45) return PartialRunSetup();
    if (choice < 60) return Callable();
    if (choice < 65) return EndSession();
    if (choice < 70) return ExtendSession();
    if (choice < 95) return WorkerCall();
    Ask();
  }

  void CreateSession() {
    pb::CreateSessionRequest request;
    *request.mutable_graph_def() = StormGraph();
    request.mutable_config()->set_isolate_session_state(Chance(4));
    Master("CreateSession", request, [names = names_](const net::Bytes& bytes) {
      pb::CreateSessionResponse response;
      if (net::Parse(bytes, &response).ok()) names->sessions.Add(response.session_handle());
    });
  }
  void ExtendSession() {
    pb::ExtendSessionRequest request;
    request.set_session_handle(Session());
    request.set_current_graph_version(static_cast<int64_t>(random_() % 8));
    pb::NodeDef* const node = request.mutable_graph_def()->add_node();
    node->set_name(absl::StrCat("more", random_() % 3));
    node->set_op("NoOp");
    Master("ExtendSession", request);
  }
  void RunStep() {
    pb::RunStepRequest request;
    request.set_session_handle(Session());
    if (!Chance(4)) SetX(request.add_feed());
    if (!Chance(6)) request.add_fetch(Fetch());
    if (Chance(4)) request.add_target("put");
    if (Chance(2)) request.set_partial_run_handle(SmallNumber());
    if (Chance(8)) request.mutable_options()->set_timeout_in_ms(20);
    request.set_store_errors_in_response_body(Chance(2));
    Master("RunStep", request);
  }
  void PartialRunSetup() {
    pb::PartialRunSetupRequest request;
    request.set_session_handle(Session());
    if (!Chance(8)) request.add_feed("x:0");
    for (uint64_t i = random_() % 3; i > 0; --i) request.add_fetch(Fetch());
    if (Chance(3)) request.add_target("put");
    Master("PartialRunSetup", request);
  }
  void Callable() {
    const std::string session = Session();
    const int64_t handle = static_cast<int64_t>(random_() % 4);
    if (Chance(3)) {
      pb::MakeCallableRequest request;
      request.set_session_handle(session);
      request.mutable_options()->add_feed("x:0");
      request.mutable_options()->add_fetch(Fetch());
      return Master("MakeCallable", request);
    }
    if (Chance(4)) {
      pb::ReleaseCallableRequest request;
      request.set_session_handle(session);
      request.set_handle(handle);
      return Master("ReleaseCallable", request);
    }
    pb::RunCallableRequest request;
    request.set_session_handle(session);
    request.set_handle(handle);
    TensorToProto(Tensor::Scalar(3.f), request.add_feed());
    Master("RunCallable", request);
  }
  void EndSession() {
    if (Chance(6)) {
      pb::ResetRequest request;
      if (Chance(2)) request.add_container("none");
      return Master("Reset", request);
    }
    pb::CloseSessionRequest request;
    request.set_session_handle(Session());
    Master("CloseSession", request);
  }
  void Ask() {
    pb::ListDevicesRequest devices;
    devices.set_session_handle(Session());
    Chance(2) ? Master("ListDevices", devices) : Say(StatusService::kMethod, StatusRequest());
  }

  void WorkerCall() {
    switch (random_() % 10) {
      case 0:
        return Chance(2) ? Worker("GetStatus", pb::GetStatusRequest()) : Worker("Tracing", pb::TracingRequest());
      case 1: {
        pb::CreateWorkerSessionRequest request;
        request.set_session_handle(Chance(2) ? Session() : SmallNumber());
        names_->sessions.Add(request.session_handle());
        return Worker("CreateWorkerSession", request);
      }
      case 2: {
        pb::DeleteWorkerSessionRequest request;
        request.set_session_handle(Chance(2) ? Session() : SmallNumber());
        return Worker("DeleteWorkerSession", request);
      }
      case 3:
        return RegisterGraph();
      case 4: {
        pb::DeregisterGraphRequest request;
        request.set_session_handle(Session());
        request.set_create_worker_session_called(true);
        request.set_graph_handle(names_->graphs.Any(random_()));
        return Worker("DeregisterGraph", request);
      }
      case 5: {
        pb::CleanupGraphRequest request;
        request.set_step_id(StepId());
        return Worker("CleanupGraph", request);
      }
      case 6: {
        pb::LoggingRequest request;
        request.set_enable_rpc_logging(Chance(2));
        return Worker("Logging", request);
      }
      case 7:
        return RecvTensor();
      default:
        return RunGraph();
    }
  }
  void RegisterGraph() {
    pb::RegisterGraphRequest request;
    request.set_session_handle(Session());
    request.set_create_worker_session_called(!Chance(4));
    *request.mutable_graph_def() = StormGraph();
    for (pb::NodeDef& node : *request.mutable_graph_def()->mutable_node()) {
      if (Chance(2)) node.clear_device();
    }
    Worker("RegisterGraph", request, [names = names_](const net::Bytes& bytes) {
      pb::RegisterGraphResponse response;
      if (net::Parse(bytes, &response).ok()) names->graphs.Add(response.graph_handle());
    });
  }
  void RunGraph() {
    pb::RunGraphRequest request;
    request.set_session_handle(Session());
    request.set_create_worker_session_called(!Chance(4));
    request.set_graph_handle(names_->graphs.Any(random_()));
    request.set_step_id(StepId());
    request.set_is_partial(Chance(3));
    request.set_is_last_partial_run(Chance(3));
    if (Chance(2)) SetX(request.add_send());
    if (Chance(2)) request.add_recv_key(Fetch());
    Worker("RunGraph", request);
  }
  void RecvTensor() {
    pb::RecvTensorRequest request;
    request.set_step_id(StepId());
    request.set_rendezvous_key(
        Chance(3) ? "nonsense"
                  : absl::StrCat("/job:ps/replica:0/task:0/device:CPU:0;000000000000000", random_() % 10,
                                 ";/job:worker/replica:0/task:0/device:CPU:0;edge_", random_() % 4, "_y;0:0"));
    Chance(4) ? Say(RemoteWorker::kRecvTensorsMethod, request) : Worker("RecvTensor", request);
  }

  std::mt19937_64 random_;
  const std::vector<std::unique_ptr<Server>>& servers_;
  KnownNames* const names_;
  Mutex mu_;
  CondVar ended_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  const std::unique_ptr<net::Transport> transport_ = net::NewGrpcTransport();  // ends before the above
  std::vector<std::shared_ptr<net::Channel>> channels_;
  std::vector<RefPtr<net::OutgoingCall>> calls_;  // recent ones
};

void Storm(uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("MILLRACE_SEED=", seed));
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}}, {.session_grace = absl::Milliseconds(100)});
  {
    KnownNames names;
    std::vector<std::unique_ptr<StormClient>> clients;
    for (int i = 0; i < kClients; ++i)
      clients.push_back(std::make_unique<StormClient>(seed * kClients + i, servers, &names));
    std::vector<std::thread> threads;
    for (const auto& client : clients) threads.emplace_back([&client] { client->Work(); });
    for (std::thread& thread : threads) thread.join();
  }
  for (const auto& server : servers) {
    EXPECT_TRUE(Await([&] {
      return server->master()->sessions().empty() && server->worker()->ListSessions().empty() &&
             server->worker()->ListRunning().empty();
    })) << server->task().name()
        << " keeps " << server->master()->sessions().size() << " sessions, " << server->worker()->ListSessions().size()
        << " worker sessions, " << server->worker()->ListRunning().size() << " running parts";
    // And it serves as before.
    Graph graph;
    GraphBuilder b(&graph);
    b.Op("Neg", {b.Const(Tensor::Scalar(3.f), "c")}, {}, "y");
    const auto session = OpenSession(OverTheNetwork(*server), graph);
    const auto run = session->Run({"y:0"});
    ASSERT_EQ(run.status(), absl::OkStatus());
    EXPECT_EQ((*run)[0].scalar<float>(), -3.f);
  }
}

TEST(RpcStorm, NoOrderOfCallsEndsOrBlocksAServer) {
  const int64_t only = Number("MILLRACE_SEED", -1);
  if (only >= 0) return Storm(static_cast<uint64_t>(only));
  const int64_t seeds = Number("MILLRACE_STORM_SEEDS", 2);
  for (int64_t seed = 0; seed < seeds; ++seed) Storm(static_cast<uint64_t>(seed));
}

}  // namespace
}  // namespace millrace
