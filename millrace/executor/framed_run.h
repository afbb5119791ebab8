// Running plans with conditionals and loops.
//
// Every value may be dead: the branch that makes it was not taken. A node with a dead input does not run
// and passes deadness on; a Merge waits for its first live input. Enter opens a frame, NextIteration
// the next iteration of it, Exit leaves it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/executor/plan.h"

namespace millrace {

// Which static frame each node belongs to, and where its inputs and counts lie within an iteration.
class FramedPlan {
 public:
  static StatusOr<std::unique_ptr<FramedPlan>> Compile(const Plan& plan);

  struct Frame {
    std::string name;        // frame_name of the Enter nodes; empty for the root
    int parent = -1;
    int num_enters = 0;      // all of them arrive before the frame may end
    int parallel_iterations = 1;
    int num_inputs = 0;      // input values of all its nodes
    int num_nodes = 0;
    std::vector<int> nodes;  // plan indices
  };
  enum class Kind { kPlain, kSwitch, kMerge, kEnter, kExit, kNextIteration };
  struct NodeInfo {
    Kind kind = Kind::kPlain;
    int frame = 0;           // where it runs
    int child_frame = -1;    // of an Enter
    bool is_constant = false;  // an Enter whose value is the same in every iteration
    int first_input = 0;     // within the iteration's input values
    int local = 0;           // within the iteration's counts
    int num_control = 0;     // control edges into it
    int num_data = 0;        // data edges into it that are not fed
  };
  // An edge out of a node: output -1 is a control edge.
  struct Edge {
    int output;
    int target;
    int input;
  };

  std::vector<Frame> frames;
  std::vector<NodeInfo> info;            // by plan index
  std::vector<std::vector<Edge>> edges;  // by plan index
  // Inputs that are fed: (plan index, input, feed index).
  struct FedInput {
    int node, input, feed;
  };
  std::vector<FedInput> fed_inputs;
};

// One run. Deletes itself after calling `done`.
class FramedRun {
 public:
  static void Start(const Plan* plan, const FramedPlan* framed, const RunArgs& args,
                    absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done);

 private:
  struct Value {
    Tensor tensor;
    bool present = false;
    bool dead = false;
  };
  struct Count {
    int pending_data = 0;     // for a Merge: data inputs that have not come
    int pending_control = 0;
    bool any_dead = false;
    bool live = false;        // a Merge that has a live input
    bool fired = false;
  };
  struct Iteration;
  struct FrameState;
  // A node that may run, in a frame and iteration.
  struct Ready {
    int node;
    FrameState* frame;
    Iteration* iteration;
    bool is_dead;
  };
  struct Execution;

  FramedRun(const Plan* plan, const FramedPlan* framed, const RunArgs& args,
            absl::Span<Tensor> fetches, absl::AnyInvocable<void(Status)> done);
  ~FramedRun();

  void Work(std::vector<Ready> ready);
  // Runs it; false when it will finish later.
  bool RunNode(const Ready& r, Execution* execution);
  void Complete(const Ready& r, Execution& execution, std::vector<Ready>* ready);
  void Fail(const PlanNode& n, const Status& status);
  void EndActivity();

  void Propagate(const Ready& r, std::vector<Value>& outputs, std::vector<Ready>* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Deliver(int node, const std::vector<Value>& outputs, bool is_dead, FrameState* frame,
               Iteration* iteration, std::vector<Ready>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DeliverEdge(const FramedPlan::Edge& edge, const Value& value, FrameState* frame,
                   Iteration* iteration, std::vector<Ready>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepFetches(int node, const std::vector<Value>& outputs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  FrameState* ChildFrame(int frame, FrameState* parent, Iteration* parent_iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Iteration* AddIteration(FrameState* frame, std::vector<Ready>* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartNextIteration(FrameState* frame, std::vector<Ready>* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops iterations that nothing more can happen in, and the frame after the last of them.
  void CleanUp(FrameState* frame, std::vector<Ready>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Plan* const plan_;
  const FramedPlan* const framed_;
  const RunArgs args_;
  const absl::Span<Tensor> fetches_;
  absl::AnyInvocable<void(Status)> done_;
  std::atomic<int> activities_{1};
  std::atomic<bool> failed_{false};

  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<FrameState> root_ ABSL_GUARDED_BY(mu_);
  struct Fetched {
    Tensor tensor;
    bool present = false;
    bool dead = false;
  };
  std::vector<Fetched> fetched_ ABSL_GUARDED_BY(mu_);
  // (plan index, output) -> fetch positions
  absl::flat_hash_map<std::pair<int, int>, std::vector<int>> fetch_of_;
};

// The number that names a frame on the wire: both sides of an edge derive it from the frame's name and the
// iteration of the parent in which it was entered.
uint64_t ChildFrameId(uint64_t parent_id, int64_t parent_iteration, absl::string_view frame_name);

}  // namespace millrace
