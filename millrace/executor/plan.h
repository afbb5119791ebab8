// A compiled graph: kernels created, slots numbered, order and last uses determined.
//
// A Plan is compiled once for each part and signature, in one of three forms:
// - sequential: no kernel is asynchronous and at most one is expensive, so all run in plan order on the caller's
//   thread;
// - straight-line: no control flow, but some kernels are asynchronous (a _Recv, a Dequeue) or worth a thread of their
//   own. A node runs when its inputs have arrived, and one thread at a time owns a run (straight_run.h);
// - framed: conditionals and loops; state per frame and iteration (framed_run.h).
#pragma once

#include <atomic>
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
  Kernel* kernel = nullptr;  // null if there is nothing to run (a NoOp, or a Const whose slot holds its value)
  Device* device = nullptr;
  int num_inputs = 0;
  int num_outputs = 0;
  int first_input = 0;   // index into Plan::input_slots_
  int first_output = 0;  // the slot of the first output; the others follow
  bool is_async = false;
  bool is_expensive = false;
  bool is_send = false;
  // Runs even with dead inputs: a _Send, which forwards deadness to the receiver, or a ControlTrigger.
  bool runs_dead = false;
  bool passes_death_on = true;  // outputs are dead if an input is; false for a ControlTrigger
  // Bit i: input i is a reference to a variable whose value the kernel needs.
  uint64_t deref = 0;
  // Sequential plans only. Bit i: this node is the last user of input i and may reuse its memory.
  uint64_t last_use = 0;
  // Sequential plans only: the range of Plan::releases_ with the slots to release after this node.
  int first_release = 0;
  int num_releases = 0;
};

struct PlanOptions {
  std::vector<Endpoint> feeds = {};
  std::vector<Endpoint> fetches = {};
  // The device of each node; required.
  std::function<StatusOr<Device*>(const Node&)> device_of = nullptr;
  // Creates kernels; if null, a new kernel is created for each node. Plans may share a kernel.
  std::function<StatusOr<std::shared_ptr<Kernel>>(const Node&, Device*)> make_kernel = nullptr;
};

struct RunArgs {
  const StepContext* step = nullptr;
  absl::Span<const Tensor> feeds = {};
  Allocator* allocator = nullptr;
  StepStatsCollector* stats = nullptr;  // null if no statistics are wanted
};

class FramedPlan;
class StraightPlan;

class Plan {
 public:
  // Takes ownership of `graph`, which must hold exactly the nodes to run. INVALID_ARGUMENT for a cycle or a frame that
  // is not properly nested, NOT_FOUND for a missing kernel, or the error of a kernel's constructor.
  static StatusOr<std::unique_ptr<Plan>> Compile(std::unique_ptr<Graph> graph, const PlanOptions& options);
  ~Plan();

  // Runs one step and calls `done` once, on any thread. The caller's thread works on the step until no node is ready.
  // `args.step` and the plan must live until `done`. `fetches` must have the right size; it is filled in before `done`.
  // Any number of runs may be in flight.
  void RunAsync(const RunArgs& args, absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done);
  // The same, blocking until the end.
  Status Run(const RunArgs& args, absl::Span<Tensor> fetches);

  const Graph& graph() const { return *graph_; }
  bool is_framed() const { return framed_ != nullptr; }
  bool is_straight_line() const { return straight_ != nullptr; }
  bool is_sequential() const { return framed_ == nullptr && straight_ == nullptr; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // The devices of its nodes that work after a kernel has returned. Usually empty.
  absl::Span<Device* const> stream_devices() const { return stream_devices_; }

 private:
  friend class StraightPlan;
  friend class StraightRun;
  friend class FramedPlan;
  friend class FramedRun;
  struct SequentialRun;

  Plan();
  Status CompileNodes(const PlanOptions& options);
  Status CompileSlots(const PlanOptions& options);
  void CompileConstants();
  void CompileLastUses();
  // True if the plan can be sequential.
  bool CanRunInOrder() const;

  Status RunAndWait(const RunArgs& args, absl::Span<Tensor> fetches);
  // Reuses the state of an earlier run, or creates a new one.
  std::unique_ptr<SequentialRun> TakeIdleRun();
  // Sets the slots that keep their value from run to run.
  void SetConstants(Tensor* slots) const;
  Status ReadFetches(const Tensor* slots, absl::Span<Tensor> fetches) const;
  // After a successful run, which has released all other slots: restores the slots to the state of a new run.
  void ResetSlots(Tensor* slots) const;

  std::unique_ptr<Graph> graph_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  std::vector<PlanNode> nodes_;  // in topological order
  std::vector<Device*> stream_devices_;
  std::vector<int> input_slots_;
  std::vector<int> releases_;
  std::vector<int> feed_slots_;
  std::vector<int> fetch_slots_;
  std::vector<Endpoint> fetches_;
  std::vector<std::pair<int, Tensor>> constants_;  // slots that never change
  int num_slots_ = 0;
  int max_inputs_ = 0;
  std::unique_ptr<StraightPlan> straight_;
  std::unique_ptr<FramedPlan> framed_;

  // The reusable state of sequential runs: one that is taken without a lock, and more if several threads run the plan.
  std::atomic<SequentialRun*> spare_{nullptr};
  Mutex mu_;
  std::vector<std::unique_ptr<SequentialRun>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
