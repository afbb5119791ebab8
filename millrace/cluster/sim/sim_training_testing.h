// A training for the simulated cluster: a counter on the parameter server, with data edges, control edges, a branch and
// a loop across all tasks. For tests only.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "millrace/base/clock.h"
#include "millrace/cluster/sim/sim_client_testing.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"

namespace millrace {

// Nodes: init; x (fed); sum = counter + 2x on worker 1; then update adds 1 to the counter, and after reads it; cond = x
// > 3 ? 10x : -x with branches on worker 1 and the ps; loop = 3 counted up on worker 1 under worker 0's condition. slow
// waits for put, on a queue of the ps, and passes worker 1.
inline const pb::GraphDef& TrainingGraph() {
  static const auto* const def = [] {
    Graph graph;
    GraphBuilder b(&graph);
    const auto on = [&](const char* task) { b.device = absl::StrCat(SimCluster::Name(task), "/device:CPU:0"); };
    on("ps0");
    const Endpoint handle =
        b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}, {"shared_name", "counter"}},
             "counter");
    b.AddNode("AssignVariableOp", {handle, b.Scalar(0.f)}, {}, "init");
    const Endpoint read = b.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, "read");
    on("worker0");
    const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "x");
    const Endpoint twice = b.Mul(x, b.Scalar(2.f));
    on("worker1");
    const Endpoint sum = b.Op("AddV2", {read, twice}, {}, "sum");
    on("ps0");
    b.control_inputs = {sum.node};
    Node* const update = b.AddNode("AssignAddVariableOp", {handle, b.Scalar(1.f)}, {}, "update");
    b.control_inputs = {update};
    b.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, "after");
    b.control_inputs = {};
    on("worker0");
    Node* const branch = b.AddNode("Switch", {x, b.Op("Greater", {x, b.Scalar(3.f)})});
    on("worker1");
    const Endpoint large = b.Mul(branch->output(1), b.Scalar(10.f));
    on("ps0");
    const Endpoint small = b.Neg(branch->output(0));
    on("worker0");
    b.Op("Merge", {small, large}, {}, "cond");
    const auto enter = [&](float value, bool constant) {
      return b.Op("Enter", {b.Scalar(value)}, {{"frame_name", "count"}, {"is_constant", constant}});
    };
    const Endpoint start = enter(0, false), limit = enter(3, true), one = enter(1, true);
    const Endpoint merge = b.Op("Merge", {start, start});
    Node* const gate = b.AddNode("Switch", {merge, b.Op("LoopCond", {b.Op("Less", {merge, limit})})});
    on("worker1");
    const Endpoint next = b.Op("NextIteration", {b.Add(gate->output(1), one)});
    graph.SetInput(merge.node, 1, next);
    on("worker0");
    b.Op("Exit", {gate->output(0)}, {}, "loop");
    on("ps0");
    const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
    const Endpoint queue = b.Op("FIFOQueueV2", {}, types, "queue");
    b.AddNode("QueueEnqueueV2", {queue, b.Scalar(5.f)}, {}, "put");
    const Endpoint taken = b.Op("QueueDequeueV2", {queue}, types);
    on("worker1");
    b.Op("AddV2", {taken, b.Scalar(1.f)}, {}, "slow");
    MR_CHECK(b.ok());
    return new pb::GraphDef(ExportGraphDef(graph));
  }();
  return *def;
}

// A client that trains, and its knowledge of the counter.
class Trainer {
 public:
  Trainer(SimCluster* cluster, const std::string& host = "client", const std::string& task = "worker0")
      : cluster_(cluster), client_(cluster, host, task) {}

  SimClient& client() { return client_; }
  int attempted() const { return attempted_; }
  int acknowledged() const { return acknowledged_; }

  TicketPtr Create(absl::Duration timeout = absl::InfiniteDuration()) {
    return client_.Create(TrainingGraph(), timeout);
  }
  TicketPtr Init() {
    attempted_ = acknowledged_ = 0;
    return client_.Run({}, {}, {"init"});
  }
  TicketPtr Step(float x, absl::Duration timeout = absl::InfiniteDuration()) {
    ++attempted_;
    return client_.Run({{"x:0", Tensor::Scalar(x)}}, {"sum:0", "cond:0", "loop:0", "after:0"}, {}, timeout);
  }
  TicketPtr SlowStep(absl::Duration timeout = absl::InfiniteDuration(),
                     absl::Duration step_timeout = absl::ZeroDuration()) {
    return client_.Run({}, {"slow:0"}, {}, timeout, step_timeout);
  }

  // Checks the results of a successful step. `alone` says that nobody else trains.
  void CheckStep(const Ticket& ticket, float x, bool alone = true) {
    ++acknowledged_;
    const float after = ticket.Value("after:0");
    EXPECT_EQ(ticket.Value("cond:0"), x > 3 ? 10 * x : -x);
    EXPECT_EQ(ticket.Value("loop:0"), 3);
    if (alone) {
      EXPECT_EQ(ticket.Value("sum:0"), after - 1 + 2 * x);
    }
    if (alone) CheckCounter(after);
  }
  // Checks that no acknowledged step is lost and none is doubled.
  void CheckCounter(float value) {
    EXPECT_GE(value, acknowledged_);
    EXPECT_LE(value, attempted_);
  }

  // Expects that the call ends successfully within `limit`.
  bool Expect(const TicketPtr& ticket, absl::Duration limit = absl::Seconds(2)) {
    const bool ended = client_.Wait(ticket, limit);
    EXPECT_TRUE(ended) << ticket->what << " has not ended after " << limit << ":\n"
                       << absl::StrJoin(cluster_->Leftovers(), "\n");
    if (ended) {
      EXPECT_EQ(ticket->status, absl::OkStatus()) << ticket->what;
    }
    return ended && ticket->status.ok();
  }
  bool ExpectStep(float x) {
    const TicketPtr ticket = Step(x);
    if (!Expect(ticket)) return false;
    CheckStep(*ticket, x);
    return true;
  }
  // Creates a session with the counter at 0.
  bool Begin() { return Expect(Create()) && Expect(Init()); }

 private:
  SimCluster* const cluster_;
  SimClient client_;
  int attempted_ = 0;
  int acknowledged_ = 0;
};

// Runs `body` for `count` seeds that the date chooses, so that each day runs others (a quarter of them under a
// sanitizer, which makes a run ten times as slow); for MILLRACE_SIM_SEEDS seeds from the time of day on, if that is
// set; or for those in MILLRACE_SEED ("17" or "1000-9999"). Stops at the first that fails and says how to replay it.
// Returns the number of seeds.
inline int ForSeeds(int count, const std::function<void(uint64_t seed)>& body) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  count = (count + 3) / 4;
#endif
  const int64_t now = absl::ToUnixSeconds(Clock::Real()->Now());
  uint64_t first = 1 + now / 86400 * 1000;
  if (const char* const wanted = std::getenv("MILLRACE_SIM_SEEDS")) {
    MR_CHECK(absl::SimpleAtoi(wanted, &count));
    first = 1 + now * 1000;
  }
  uint64_t last = first + count - 1;
  if (const char* const wanted = std::getenv("MILLRACE_SEED")) {
    const std::vector<std::string> range = absl::StrSplit(wanted, '-');
    MR_CHECK(absl::SimpleAtoi(range.front(), &first) && absl::SimpleAtoi(range.back(), &last));
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    body(seed);
    if (!::testing::Test::HasFailure()) continue;
    ADD_FAILURE() << "replay with MILLRACE_SEED=" << seed;
    break;
  }
  return static_cast<int>(last - first + 1);
}

// Prints the log of a replay.
inline void PrintLog(SimCluster* cluster) {
  const char* const seed = std::getenv("MILLRACE_SEED");
  const bool one_seed = seed != nullptr && !absl::StrContains(seed, '-');
  if (!one_seed && std::getenv("MILLRACE_FAULT") == nullptr) return;
  std::cerr << absl::StrJoin(cluster->network().log(), "\n") << "\n";
}

}  // namespace millrace
