// Servers whose steps take a given transport, and a graph over them. For tests only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"

namespace millrace {

// How `from` reaches the task at the address of `to`. The kind is empty if it does not, or by gRPC only.
inline net::PeerStatus PeerOf(const Server& from, const Server& to) {
  for (const net::PeerStatus& peer : from.worker()->options().transport->status().peers) {
    if (peer.outgoing && absl::EndsWith(peer.peer, absl::StrCat(":", to.port()))) return peer;
  }
  return {};
}

// Tests what every transport does; the parameter is "grpc", "tcp" or "shm".
class StepTransportTest : public ::testing::TestWithParam<const char*> {
 protected:
  ~StepTransportTest() override {
    session_.reset();
    servers_.clear();
  }

  const std::string transport_ = GetParam();
  bool has_lane() const { return transport_ != "grpc"; }
  // Starts one ps and `workers` workers.
  void Start(int workers = 2, ServerOptions options = {}) {
    options.step_transport = transport_;
    servers_ = StartServers({{"ps", 1}, {"worker", workers}}, options);
    ASSERT_EQ(ps().task().job, "ps");
  }
  Server& ps() { return *servers_[0]; }
  Server& worker(int index = 0) { return *servers_[static_cast<size_t>(index) + 1]; }

  static constexpr char kPs[] = "/job:ps/task:0/device:CPU:0";
  static std::string WorkerDevice(int index) { return absl::StrCat("/job:worker/task:", index, "/device:CPU:0"); }
  void OnPs() { b_.device = kPs; }
  void OnWorker(int index = 0) { b_.device = WorkerDevice(index); }
  // A variable on the ps. The node NAME/init sets it to `initial`.
  Endpoint Variable(const std::string& name, DType dtype, const Shape& shape, Endpoint initial) {
    OnPs();
    const Endpoint handle =
        b_.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}, {"shared_name", name}}, name);
    b_.AddNode("AssignVariableOp", std::vector<Endpoint>{handle, initial}, {}, name + "/init");
    b_.Op("ReadVariableOp", {handle}, {{"dtype", dtype}}, name + "/read");
    return handle;
  }
  Endpoint Filled(const Shape& shape, float value) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    return b_.Op("Fill", {b_.Const(Tensor::FromVector(dims)), b_.Scalar(value)}, {{"index_type", DType::kInt64}});
  }
  Endpoint Named(const std::string& name) { return {graph_.FindNode(name), 0}; }
  Endpoint SumOf(Endpoint x, const std::string& name) {
    return b_.Op("Sum", {b_.Reshape(x, b_.Ints({-1})), b_.Ints({0})}, {}, name);
  }

  // Opens a session at worker 0, in its process, and waits until the transport of its steps is connected.
  Session* Open() {
    std::vector<std::string> pings;
    for (size_t i = 0; i < servers_.size(); ++i) {
      b_.device = servers_[i]->task().job == "ps" ? kPs : WorkerDevice(servers_[i]->task().index);
      pings.push_back(b_.AddNode("NoOp", {}, {}, "ping")->name());
    }
    EXPECT_EQ(b_.status(), absl::OkStatus());
    session_ = OpenSession({.target = worker().target()}, graph_);
    EXPECT_TRUE(Await([&] {
      EXPECT_EQ(session_->RunTargets(pings), absl::OkStatus());
      return UsesTransport();
    })) << DescribePeers();
    return session_.get();
  }
  // True if worker 0 reaches all other tasks over the requested transport.
  bool UsesTransport() {
    for (const auto& server : servers_) {
      if (server.get() == &worker()) continue;
      if (PeerOf(worker(), *server).kind != (has_lane() ? transport_ : "")) return false;
    }
    return true;
  }
  std::string DescribePeers() {
    std::string text;
    for (const net::PeerStatus& peer : worker().worker()->options().transport->status().peers) {
      absl::StrAppend(&text, peer.peer, " ", peer.kind, " ", peer.why_not_better, "\n");
    }
    return text;
  }
  // Expects that no task knows a step any more or holds received memory.
  void ExpectQuiet() {
    for (const auto& server : servers_) {
      EXPECT_TRUE(Await([&] { return server->worker()->ListSteps().empty(); })) << server->task().name();
      EXPECT_TRUE(Await([&] { return server->worker()->ListWaits().empty(); })) << server->task().name();
    }
  }

  Graph graph_;
  GraphBuilder b_{&graph_};
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<Session> session_;
};

inline std::string TransportName(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace millrace
