// Runs plans with conditionals and loops.
//
// A value may be dead: it belongs to a branch that was not taken. A node with a dead input does not run, and its
// outputs are dead; a Merge waits for its first live input. Enter opens a frame, NextIteration starts its next
// iteration, Exit leaves it.
//
// While only one thread works on a run, nothing is locked: other threads join only when this one gives them work.
// Iterations and frames are reused, so a loop in the steady state allocates nothing here.
#pragma once

#include <memory>
#include <vector>

#include "millrace/executor/framed_plan.h"

namespace millrace {

// One run. When it ends, the plan keeps its memory for the next run.
class FramedRun {
 public:
  static void Start(const Plan* plan, FramedPlan* framed, const RunArgs& args, absl::Span<Tensor> fetches,
                    absl::AnyInvocable<void(Status)> done);
  ~FramedRun();

 private:
  using Kind = FramedPlan::Kind;
  using Count = FramedPlan::Count;
  struct FrameState;
  struct Iteration;
  // A node that is ready to run, with its frame and iteration.
  struct Ready {
    int node;
    bool is_dead;
    FrameState* frame;
    Iteration* iteration;
  };
  using ReadyList = std::vector<Ready>;
  struct Scratch;
  class Turn;

  FramedRun(const Plan* plan, FramedPlan* framed);

  void Work(ReadyList ready);
  // Runs a node. Returns false if it finishes asynchronously.
  bool RunNode(const Ready& r, Scratch* scratch);
  // Handles nodes that need no kernel. Returns true if it has set the outputs.
  bool PassOn(const Ready& r, Tensor* outputs);
  bool RunKernel(const Ready& r, Scratch* scratch);
  void Complete(const Ready& r, Tensor* outputs, bool ran, ReadyList* ready);
  // `why` names the node.
  void Fail(const Status& why);
  void EndActivity();

  // Delivers a node's outputs to its consumers; moves from `outputs`.
  void Propagate(const Ready& r, Tensor* outputs, bool dead, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Deliver(int node, Tensor* outputs, bool dead, FrameState* frame, Iteration* iteration, ReadyList* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Arrive(const FramedPlan::Edge& edge, bool dead, Tensor* value, bool may_move, FrameState* frame,
              Iteration* iteration, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepFetches(int node, const Tensor* outputs, bool dead) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  FrameState* ChildFrame(int frame, FrameState* parent, Iteration* parent_iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Iteration* AddIteration(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartNextIteration(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops iterations that are complete, and the frame after the last of them.
  void CleanUp(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Recycle(Iteration* iteration, int frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ReadFetches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Plan* const plan_;
  FramedPlan* const framed_;
  RunArgs args_;
  absl::Span<Tensor> fetches_;
  absl::AnyInvocable<void(Status)> done_;
  // The number of working threads and of asynchronous nodes in flight. While it is 1, that thread owns the run.
  std::atomic<int> activities_{1};
  std::atomic<bool> failed_{false};

  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
  FrameState* root_ ABSL_GUARDED_BY(mu_) = nullptr;
  struct Fetched {
    Tensor tensor;
    bool present = false;
    bool dead = false;
  };
  std::vector<Fetched> fetched_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<Iteration*>> idle_iterations_ ABSL_GUARDED_BY(mu_);  // by frame
  std::vector<FrameState*> idle_frames_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Iteration>> iterations_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<FrameState>> frames_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
