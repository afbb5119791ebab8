// A graph compiled for running: kernels made, slots numbered, order and last uses known.
//
// A Plan is made once for each partition and signature and then only run. Straight-line plans (no Switch
// or Enter) are a flat array in topological order; framed ones keep state per frame and iteration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/executor/step_arena.h"
#include "millrace/executor/step_stats.h"
#include "millrace/graph/graph.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// One node of a plan. Values live in slots: one for each output of each node and one for each feed.
struct PlanNode {
  const Node* node = nullptr;
  Kernel* kernel = nullptr;  // null: nothing to run (NoOp)
  Device* device = nullptr;
  int num_inputs = 0;
  int num_outputs = 0;
  int first_input = 0;   // into Plan::input_slots
  int first_output = 0;  // slots of the outputs, one after another
  bool is_async = false;
  bool is_expensive = false;
  // Bit i: input i is a reference to a variable and the kernel wants its value.
  uint64_t deref = 0;
  // Bit i: in plan order this node is the last to look at input i, and may take its memory.
  uint64_t last_use = 0;
  // Slots to let go of after this node, in plan order.
  int first_release = 0;
  int num_releases = 0;
  // Who waits for this node: into Plan::successors. In a straight-line plan, once for each edge.
  int first_successor = 0;
  int num_successors = 0;
  int num_pending = 0;  // edges and control edges into this node
};

struct PlanOptions {
  std::vector<Endpoint> feeds = {};
  std::vector<Endpoint> fetches = {};
  // The device of each node; required.
  std::function<StatusOr<Device*>(const Node&)> device_of = nullptr;
  // Where kernels come from; null: a new one for each node. A kernel may be shared between plans.
  std::function<StatusOr<std::shared_ptr<Kernel>>(const Node&, Device*)> make_kernel = nullptr;
};

struct RunArgs {
  const StepContext* step = nullptr;
  absl::Span<const Tensor> feeds = {};
  Allocator* allocator = nullptr;
  StepStatsCollector* stats = nullptr;  // null: no statistics
};

class FramedPlan;
class StraightRun;

class Plan {
 public:
  // Takes the graph, which holds exactly the nodes to run. INVALID_ARGUMENT for a cycle or a frame that is
  // not well nested, NOT_FOUND for a missing kernel, or what a kernel's constructor said.
  static StatusOr<std::unique_ptr<Plan>> Compile(std::unique_ptr<Graph> graph,
                                                 const PlanOptions& options);
  ~Plan();

  // Runs one step and calls `done` once, on any thread; the caller's thread works on it until nothing is
  // ready. `args.step` and the plan live until then. `fetches` is sized by the caller and filled in
  // before `done`. Any number of runs may be in flight.
  void RunAsync(const RunArgs& args, absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done);
  // The same, waiting for the end.
  Status Run(const RunArgs& args, absl::Span<Tensor> fetches);

  const Graph& graph() const { return *graph_; }
  bool is_framed() const { return framed_ != nullptr; }
  // True when a run needs no scheduling: every kernel runs in plan order on the caller's thread.
  bool is_sequential() const { return sequential_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }

 private:
  friend class StraightRun;
  friend class FramedRun;
  friend class FramedPlan;
  struct RunState;

  Plan();
  Status CompileNodes(const PlanOptions& options);
  Status CompileSlots(const PlanOptions& options);
  void CompileLastUses();
  void CompileConstants();
  template <bool kTrace>
  Status RunSequential(const RunArgs& args, RunState& state, absl::Span<Tensor> fetches);
  Status ReadFetches(const RunState& state, absl::Span<Tensor> fetches) const;
  std::unique_ptr<RunState> TakeState();
  void GiveBack(std::unique_ptr<RunState> state);

  std::unique_ptr<Graph> graph_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  std::vector<PlanNode> nodes_;  // in topological order
  std::vector<int> input_slots_;
  std::vector<int> releases_;
  std::vector<int> successors_;
  std::vector<int> feed_slots_;
  std::vector<int> fetch_slots_;
  std::vector<Endpoint> fetches_;
  std::vector<int> slot_uses_;  // how many inputs and fetches look at a slot
  std::vector<std::pair<int, Tensor>> constants_;  // slots that never change
  int num_slots_ = 0;
  int max_inputs_ = 0;
  bool sequential_ = false;
  std::unique_ptr<FramedPlan> framed_;

  Mutex mu_;
  std::vector<std::unique_ptr<RunState>> idle_states_ ABSL_GUARDED_BY(mu_);
};

// The error of a node as the user sees it: "{{node a/b}} = MatMul on /job:.../CPU:0: what happened".
Status NodeError(const Node& node, const Device& device, const Status& status);

// Reads a reference to a variable; FAILED_PRECONDITION names one without a value.
StatusOr<Tensor> ReadReference(const Tensor& reference);

}  // namespace millrace
