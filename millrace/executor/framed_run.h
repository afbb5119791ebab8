// Running plans with conditionals and loops.
//
// Every value may be dead: the branch that makes it was not taken. A node with a dead input does not run
// and passes deadness on; a Merge waits for its first live input. Enter opens a frame, NextIteration
// the next iteration of it, Exit leaves it.
//
// As long as one thread works on a run, nothing is locked: the others come in only when this one hands
// them something. Iterations and frames are used again, so a steady loop allocates nothing here.
#pragma once

#include <memory>
#include <vector>

#include "millrace/executor/framed_plan.h"

namespace millrace {

// One run; afterwards its memory waits in the plan for the next.
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
  // A node that may run, in a frame and iteration.
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
  // Runs it; false when it will finish later.
  bool RunNode(const Ready& r, Scratch* scratch);
  // What needs no kernel: true when the outputs are set.
  bool PassOn(const Ready& r, Tensor* outputs);
  bool RunKernel(const Ready& r, Scratch* scratch);
  void Complete(const Ready& r, Tensor* outputs, bool ran, ReadyList* ready);
  void Fail(const PlanNode& n, const Status& status);
  void EndActivity();

  // Hands on what a node gave; the outputs are moved from.
  void Propagate(const Ready& r, Tensor* outputs, bool dead, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Deliver(int node, Tensor* outputs, bool dead, FrameState* frame, Iteration* iteration, ReadyList* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Arrive(const FramedPlan::Edge& edge, bool dead, Tensor* value, bool may_move, FrameState* frame,
              Iteration* iteration, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepFetches(int node, const Tensor* outputs, bool dead) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  FrameState* ChildFrame(int frame, FrameState* parent, Iteration* parent_iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Iteration* AddIteration(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartNextIteration(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops iterations that nothing more can happen in, and the frame after the last of them.
  void CleanUp(FrameState* frame, ReadyList* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Recycle(Iteration* iteration, int frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ReadFetches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Plan* const plan_;
  FramedPlan* const framed_;
  RunArgs args_;
  absl::Span<Tensor> fetches_;
  absl::AnyInvocable<void(Status)> done_;
  // Threads at work and asynchronous nodes. While it is 1, the one thread owns everything.
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
